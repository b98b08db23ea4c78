"""Session of a device with its notification server: hellos, heartbeats, and the stream to its apps.

Rules (Mobius 5):

============  ======================================================================================
Attach        a hello with all apps that are to be notified, once all that attach now have done so
link up       a hello with the current address
Identify      a hello with the server's nonce
Redirect      a hello to the responsible server
Welcome       late copy: ignored; else its session is sent to the apps
StreamItem    in order and once: to the app that it concerns, a generation to all; acknowledged
heartbeat     sign of life to the server, one for all apps
============  ======================================================================================

An item is acknowledged when it is forwarded. An app that is killed before it has stored it says hello in
another session, where it registers its continuous reads from the position that it has stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET

from mudkit.delivery.retransmit import RetransmitTimer
from mudkit.delivery.stream import Incoming, StreamItem
from mudkit.events import CancelTimer, Effect, Received, Send, SetTimer
from mudkit.systems.mud.device.attachment import Attach, PassedOn, SessionState, address_of
from mudkit.systems.mud.messages.notifications import (
    SERVICE_FROM_NOTIFICATION_SERVER,
    Hello,
    Identify,
    NewGeneration,
    Notification,
    Policy,
    Redirect,
    Welcome,
)
from mudkit.systems.mud.messages.parts import app_of, netid_of
from mudkit.systems.mud.servers.notifications import HEARTBEAT_US

GREET: Final = "greet"
"""Timer of a hello after an attachment or a change of the link."""
HEARTBEAT: Final = "heartbeat"
HELLO: Final = "hello"
"""Timer of the retransmission of a hello, and its key there."""
_TIMEOUT_US: Final = 10_000_000
"""Retransmission timeout; it does not grow: a lost hello must not delay notifications by minutes."""


class Greeting:
    """Session of a device, for the ``apps`` that are attached to its service, and the stream of its items.

    The first of ``servers`` knows which notification server is responsible.
    """

    def __init__(self, netid: str, servers: Sequence[str], apps: dict[str, Attach]) -> None:
        self._incarnation = ""
        """Incarnation of the first app that has attached, which no other start of the device has, either."""
        self._netid = netid
        self._servers, self._server = servers, servers[0]
        self._apps = apps
        self._is_up = False
        self._session: str | None = None
        self._is_greeted = False
        """True if the server knows the current address."""
        self._hello_seq = 0
        """Number of the last hello of this start."""
        self._open_seq = 1
        """Number of the first hello whose welcome counts."""
        self._nonce: str | None = None
        """Nonce requested by the server."""
        self._incoming: Incoming[Notification] | None = None
        """Stream of the session; None before its first item."""
        self._timer: RetransmitTimer[str] = RetransmitTimer(HELLO, _TIMEOUT_US, _TIMEOUT_US)

    def attach(self, now_us: int, app: str, attachment: Attach) -> Sequence[Effect]:
        """Store an app's attachment; plan a hello that names it, or end the session's timers without any."""
        before = self._apps.get(app)
        was_notified = before is not None and before.is_notified
        self._apps[app] = attachment
        self._incarnation = self._incarnation or attachment.incarnation
        if attachment.is_notified and not was_notified:
            self._open_seq = self._hello_seq + 1  # earlier hellos do not name it
            return (SetTimer(GREET, 0),)
        if self._notified():
            return ()
        self._is_greeted = False
        return [*self._timer.settle(now_us, HELLO), CancelTimer(HEARTBEAT)] if was_notified else ()

    def link_up(self) -> Sequence[Effect]:
        """Note the current link, and plan a hello with its address."""
        self._is_up, self._is_greeted = True, False
        greet = (SetTimer(GREET, 0),) if self._notified() else ()
        return [*self._timer.clear(), *greet]

    def link_down(self) -> Sequence[Effect]:
        """Note that there is no link, and cancel hello and heartbeat; apps are not told."""
        self._is_up = self._is_greeted = False
        return [*self._timer.clear(), CancelTimer(HEARTBEAT)]

    def handle_timer(self, now_us: int, name: str) -> Sequence[Effect]:
        """Send the hello or heartbeat that a timer was set for."""
        if name == GREET:
            return self._greet(now_us)
        if name == HEARTBEAT:
            return *self._transmit_hello(now_us, is_new=False), SetTimer(HEARTBEAT, HEARTBEAT_US)
        if HELLO not in self._timer.overdue(now_us):
            return self._timer.restart(now_us)
        return [*self._end_greeting(), *self._send_hello(now_us), *self._timer.restart(now_us)]

    def receive(self, now_us: int, event: Received) -> Sequence[Effect] | None:
        """Handle a message of a notification server; None: it is to be dropped."""
        match SERVICE_FROM_NOTIFICATION_SERVER.decode(event.message):
            case Welcome() as welcome:
                return self._receive_welcome(now_us, welcome)
            case Identify(endpoint=endpoint, nonce=nonce):
                is_own = netid_of(endpoint) == self._netid  # else of a former owner of this address
                return self._identify(now_us, nonce) if is_own else ()
            case Redirect(to=to):
                return self._follow_redirect(now_us, to)
            case StreamItem() as item:
                return self._receive_item(event.source, item)
        return None

    def _identify(self, now_us: int, nonce: str) -> Sequence[Effect]:
        """Answer the server's question by a hello with its nonce, unless such a hello is unanswered."""
        if nonce == self._nonce and HELLO in self._timer:
            return ()
        self._nonce = nonce
        return [*self._end_greeting(), *self._greet(now_us)]

    def _follow_redirect(self, now_us: int, to: str) -> Sequence[Effect]:
        """Send a hello to the responsible server, unless such a hello is unanswered."""
        if to not in self._servers or (to == self._server and HELLO in self._timer):
            return ()
        self._server = to
        return [*self._end_greeting(), *self._greet(now_us)]

    def _receive_welcome(self, now_us: int, welcome: Welcome) -> Sequence[Effect]:
        """Send the session to the apps of the hello; ignore a late copy."""
        if welcome.incarnation != self._incarnation or welcome.seq < self._open_seq:
            return ()
        self._open_seq, self._nonce, self._is_greeted = welcome.seq + 1, None, True
        effects = [*self._timer.settle(now_us, HELLO)]
        named, others = self._notified(), list[str]()
        if named:
            effects.append(SetTimer(HEARTBEAT, HEARTBEAT_US))
        if welcome.session != self._session:
            self._session, self._incoming = welcome.session, None
            others = [app for app in self._apps if app not in named]  # not in this session
        effects += [Send(address_of(app), SessionState(None, is_greeted=False)) for app in others]
        state = SessionState(self._session, is_greeted=True)
        return [*effects, *(Send(address_of(app), state) for app in named)]

    def _receive_item(self, source: str, item: StreamItem[Notification]) -> Sequence[Effect]:
        """Forward the items of the session's stream that are next to their apps."""
        if item.stream != self._session:
            return ()
        if self._incoming is None:
            self._incoming = Incoming(item.first)
        effects: list[Effect] = []
        for body in self._incoming.take(item):
            forwarded = PassedOn(body)
            effects += [Send(address_of(app), forwarded) for app in self._concerned(body)]
        return [*effects, Send(source, self._incoming.build_ack(item.stream))]

    def _concerned(self, body: Notification) -> Sequence[str]:
        """Return the attached apps that an item is for."""
        if isinstance(body, NewGeneration):
            return list(self._apps)
        app = body.app if isinstance(body, Policy) else app_of(body.endpoint)
        return [app] if app in self._apps else []

    def _notified(self) -> dict[str, Attach]:
        """Return the apps that the notification server may have something for."""
        return {app: attachment for app, attachment in self._apps.items() if attachment.is_notified}

    def _greet(self, now_us: int) -> Sequence[Effect]:
        """Send a hello with news: welcomes for earlier hellos no longer count."""
        self._open_seq = self._hello_seq + 1
        return self._send_hello(now_us)

    def _send_hello(self, now_us: int) -> Sequence[Effect]:
        """Send the current address to the notification server, if it may have something to send."""
        return self._transmit_hello(now_us, is_new=True) if self._is_up and self._notified() else ()

    def _end_greeting(self) -> Sequence[Effect]:
        """Note that the server may not know the current address, and report it to the apps."""
        if not self._is_greeted:
            return ()
        self._is_greeted = False
        state = SessionState(self._session, is_greeted=False)
        return [Send(address_of(app), state) for app in self._notified()]

    def _transmit_hello(self, now_us: int, *, is_new: bool) -> Sequence[Effect]:
        """Send a hello with the next number, and start its deadline; ``is_new`` False: a heartbeat."""
        self._hello_seq += 1
        (first, attachment), *others = self._notified().items()
        is_answer = self._nonce is not None
        tokens = {app: one.token for app, one in self._apps.items() if one.token is not None}
        policies = {app: one.policies for app, one in others}
        message = Hello(
            endpoint=f"{self._netid}/{first}",
            session=self._session,
            is_new=is_new,
            policies=attachment.policies,
            incarnation=self._incarnation,
            seq=self._hello_seq,
            nonce=UNSET if self._nonce is None else self._nonce,
            tokens=tokens if is_new or is_answer else UNSET,
            others=policies if policies and (is_new or is_answer) else UNSET,
        )
        return Send(self._server, message), *self._timer.start(now_us, HELLO)
