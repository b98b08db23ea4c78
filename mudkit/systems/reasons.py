"""Reasons for which messages are sent, for bills that are split by them.

One function a system sorts its messages by their kind. With the reason it returns identities: names of what
the message carries that stay the same when it is sent again. What is sent again is a retransmission, except
for acknowledgements and signs of life, which have no identity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeAlias

from msgspec import UNSET

from mudkit.delivery import stream, submission
from mudkit.events import Reason
from mudkit.systems.contrail import messages as contrail
from mudkit.systems.lasthop import messages as lasthop
from mudkit.systems.mud.messages import notifications, requests
from mudkit.systems.mud.messages.usage import UsageReport
from mudkit.systems.radiator import messages as radiator
from mudkit.systems.store_and_forward import messages as store_and_forward
from mudkit.systems.sublim import messages as sublim
from mudkit.wire import wire_fields

_Sorted: TypeAlias = tuple[Reason, Sequence[Hashable]]
"""Reason of a message, and the identities of what it carries."""
_ACKNOWLEDGEMENT: Final[_Sorted] = ("acknowledgement", ())
_ADMINISTRATION: Final[_Sorted] = ("administration", ())
_HEARTBEAT: Final[_Sorted] = ("heartbeat", ())
_PAYLOAD: Final[_Sorted] = ("payload", ())


def reason_of(system: str, message: object) -> _Sorted:
    """Return the reason and the identities of a message of a system; ``payload`` for a system of one's own.

    Parameters
    ----------
    system : str
        The system that is charged.
    message : object
        As its machine sends it.
    """
    sort = _SORTERS.get(system)
    return _PAYLOAD if sort is None else sort(message)


def _sort_mud(message: object) -> _Sorted:
    """Return the reason of a message of MUD, and the identities of what it carries."""
    match message:
        case requests.Ask(id=request_id, what=what):
            return _reason_of_requests([what]), [request_id]
        case requests.AskBatch(asks=asks):
            return _reason_of_requests([ask.what for ask in asks]), [ask.id for ask in asks]
        case requests.AppsBatch(parts=parts):
            sorted_parts = [_sort_mud(part) for part in parts]
            is_payload = any(reason == "payload" for reason, _ in sorted_parts)
            identities = [identity for _, some in sorted_parts for identity in some]
            return "payload" if is_payload else "administration", identities
        case requests.Part(id=request_id, place=place):
            return "payload", [(request_id, place)]
        case stream.StreamItem(stream=name, seq=seq, body=body):
            return _reason_of_notification(body), [(name, seq)]
        case notifications.Hello(is_new=False):
            return _HEARTBEAT
        case requests.Administered(id=request_id):
            return "administration", [request_id]
        case (
            requests.WriteOutcome() | requests.PartsComplete() | requests.ContinuousReadAck()
            | requests.RequestRefused() | requests.LogRestarted() | requests.UsageTaken()
            | notifications.Welcome() | stream.StreamAck()
        ):  # fmt: skip
            return _ACKNOWLEDGEMENT
    return _ADMINISTRATION


def _reason_of_requests(whats: Sequence[requests.Request]) -> Reason:
    """Return the reason of requests of MUD: payload if one of them reads or writes."""
    if all(isinstance(what, UsageReport) for what in whats):
        return "policy"
    is_payload = any(isinstance(what, requests.ReadRequest | requests.WriteRequest) for what in whats)
    return "payload" if is_payload else "administration"


def _reason_of_notification(body: notifications.Notification) -> Reason:
    """Return the reason of a notification of MUD."""
    if isinstance(body, notifications.Policy):
        return "policy"
    has_data = isinstance(body, notifications.Tell) and (body.change is not UNSET or body.state is not UNSET)
    return "payload" if has_data else "administration"


def _sort_lasthop(message: object) -> _Sorted:
    """Return the reason of a message of the last hop, and the identities of what it carries."""
    match message:
        case lasthop.StreamMessage(body=lasthop.ReadComplete()):
            return _ACKNOWLEDGEMENT
        case lasthop.StreamMessage(stream=name, seq=seq):
            return "payload", [(name, seq)]
        case lasthop.ReadRequest(session=session, topic=topic, number=number):
            return "payload", [(session[:2], topic, number)]
        case lasthop.DeviceFacts(session=(store_id, _, _), facts=facts):
            kinds = (lasthop.Subscribed, lasthop.Unsubscribed)
            is_payload = any(not isinstance(fact, kinds) for _, fact in facts)
            identities = [(store_id, number) for number, _ in facts]
            return "payload" if is_payload else "administration", identities
        case lasthop.Welcome() | lasthop.FactsAck() | lasthop.Ack():
            return _ACKNOWLEDGEMENT
    return _sort_submission(message)


def _sort_submission(message: object) -> _Sorted:
    """Return the reason of a message of a publisher, or to one; that of any other is administration."""
    match message:
        case submission.Submission(session=session, number=number, incarnation=incarnation):
            return "payload", [(session if incarnation is UNSET else incarnation, number)]
        case submission.SubmitWelcome() | submission.SubmitAck():
            return _ACKNOWLEDGEMENT
    return _ADMINISTRATION


def _sort_contrail(message: object) -> _Sorted:
    """Return the reason of a message of Contrail; that of filters is policy: they decide at the sender."""
    match message:
        case contrail.Push(number=number, message=pushed):
            is_named = isinstance(pushed, contrail.Data) and pushed.body is None
            return _reason_of_entries([pushed]), [(number, is_named)]
        case contrail.Deliver(page=[]) | contrail.PushAnswer() | contrail.Pull(got=[_, *_]):
            return _ACKNOWLEDGEMENT
        case contrail.Deliver(page=page, storage_incarnation=incarnation):
            return _reason_of_entries([entry for _, entry in page]), [
                (incarnation, number) for number, _ in page
            ]
        case contrail.Pull() | contrail.Probe() | contrail.Filled():
            return _HEARTBEAT
    return _ADMINISTRATION


def _reason_of_entries(entries: Sequence[object]) -> Reason:
    """Return the reason of messages between devices: payload if there is an item, else policy if a filter."""
    kinds = {wire_fields(entry).get("kind") for entry in entries}
    return "payload" if "data" in kinds else "policy" if "filter" in kinds else "administration"


def _sort_radiator(message: object) -> _Sorted:
    """Return the reason of an encoded message of Radiator, and the identities of what it carries."""
    fields = wire_fields(radiator.unpack(message) if isinstance(message, bytes) else message)
    kind = fields.get("kind")
    match kind:
        case "context":
            return "payload", [(kind, fields.get("client"), fields.get("incarnation"), fields.get("number"))]
        case "push":
            return "payload", [(kind, fields.get("aggregate"))]
        case "got" | "taken" | "registered" | "unregistered":
            return _ACKNOWLEDGEMENT
        case "register" | "unregister":
            identity = tuple(
                fields.get(name) for name in ("kind", "client", "incarnation", "turn", "challenge")
            )
            return "administration", [identity]
    return _ADMINISTRATION


def _sort_sublim(message: object) -> _Sorted:
    """Return the reason of a message of SUBLIM; that of reports of variables is policy."""
    match message:
        case sublim.Deliver(session=session, seq=seq):
            return "payload", [(session, seq)]
        case sublim.PlainMessage(log_incarnation=incarnation, lsn=lsn):
            return "payload", [(incarnation, lsn)]
        case sublim.SetPolicy(store_id=store_id, seq=seq) | sublim.Report(store_id=store_id, seq=seq):
            return "policy", [(type(message).__name__, store_id, seq)]
        case sublim.Hello():
            return _HEARTBEAT
        case sublim.Attached() | sublim.ReportAck() | sublim.PolicyAck() | sublim.DeliveryAck():
            return _ACKNOWLEDGEMENT
    return _sort_submission(message)


def _sort_store_and_forward(message: object) -> _Sorted:
    """Return the reason of a message of store and forward, with or without a relay."""
    match message:
        case store_and_forward.Upload(incarnation=incarnation, number=number):
            return "payload", [(incarnation, number)]
        case store_and_forward.Deliver(sender=sender, incarnation=incarnation, number=number):
            return "payload", [(sender, incarnation, number)]
        case store_and_forward.Message():
            return _PAYLOAD
        case store_and_forward.Hello(answer=answer) if answer is UNSET:
            return _HEARTBEAT
        case (
            store_and_forward.UploadAck() | store_and_forward.UploadGap() | store_and_forward.DeliveryAck()
            | store_and_forward.DeliveryGap() | store_and_forward.Welcome()
        ):  # fmt: skip
            return _ACKNOWLEDGEMENT
    return _ADMINISTRATION


_SORTERS: Final[dict[str, Callable[[object], _Sorted]]] = {
    "contrail": _sort_contrail,
    "direct": _sort_store_and_forward,
    "last hop": _sort_lasthop,
    "mud": _sort_mud,
    "radiator": _sort_radiator,
    "store and forward": _sort_store_and_forward,
    "sublim": _sort_sublim,
}
