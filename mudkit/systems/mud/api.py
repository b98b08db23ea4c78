"""What a notebook holds of MUD tables: the client of an app on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Annotated, Concatenate, Final, Literal, ParamSpec, TypeAlias, TypeVar

from mudkit.arguments import check_calls, check_init
from mudkit.errors import AccessDenied, ParameterError, brief
from mudkit.events import Host, Operation
from mudkit.predicates import Predicate
from mudkit.sources.parameters import number, of_kind, whole_number
from mudkit.systems.arguments import check_device
from mudkit.systems.displays import OnHost
from mudkit.systems.mud.device.client import ClientMachine, Settings
from mudkit.systems.mud.device.policy_slot import ShippedPolicy
from mudkit.systems.mud.device.write_path import WriteType
from mudkit.systems.mud.messages import (
    Alter,
    Create,
    Delete,
    Drop,
    Held,
    Pending,
    Policies,
    Read,
    Register,
    Renew,
    Unregister,
    UpdateData,
    Write,
)
from mudkit.systems.mud.policies.policies import Now, PrefetchPolicy, ReadPolicy, WritePolicy
from mudkit.systems.mud.policies.utility import Utility
from mudkit.systems.mud.result import Change, ReadResult
from mudkit.systems.mud.servers.cloud import NAME, PORT, Cloud
from mudkit.systems.mud.tables.queries import tables_of
from mudkit.systems.mud.tables.records import check_record
from mudkit.systems.mud.tables.table import Level
from mudkit.tokens import Authority
from mudkit.wire import Fields, Value

__all__ = ["BlockingClient", "Client", "PubSub"]


_MAX_NAME: Final = 400
"""Characters of the names of a device and an app together: messages are named after them."""
ReadType: TypeAlias = Literal["uncommitted", "committed", "committed_wio", "continuous"]
_Record: TypeAlias = Annotated[Fields, 'a mapping of columns to values, such as {"topic": "arts"}']


@check_calls
class Client(OnHost):
    """One app's client on a device (Mobius 3.1, table 2).

    Every call gives an :class:`~mudkit.events.Operation`. What cannot be is refused at once, before anything
    is queued: a predicate that does not parse, a key that is none, a record that is too large.

    Parameters
    ----------
    device : Host
    cloud : Cloud
    app : str
    token : str, optional
        The token that ``lab.token(…)`` gives; without one only public tables are open.
    max_rows : int
        The number of committed records that it keeps.
    read_policy, write_policy, prefetch_policy : optional
        What it answers by itself, what it sends later, and what it fetches before it is asked for;
        :class:`~mudkit.systems.mud.device.policy_slot.ShippedPolicy` follows what the cloud ships.

    Raises
    ------
    ParameterError
        It is given no device or no cloud, no name of an app, or a token of another app. A token that is not
        of this lab, is changed or has expired is refused by the cloud, which alone can tell.

    Attributes
    ----------
    device : Host

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Cloud
    >>> lab = Lab(seed=7)
    >>> cloud = Cloud(lab)
    >>> jane = Client(lab.device("jane-phone"), cloud, app="news", token=lab.token(user="jane", app="news"))
    >>> jane.create("news", acl="app", split=["g", "p"]).result()
    >>> jane.write("news", "a17", {"topic": "arts"}).result()
    1
    >>> jane.read("news", "topic = 'arts'").result().records
    {'a17': {'topic': 'arts'}}
    """

    def __init__(
        self,
        device: Host,
        cloud: Cloud,
        *,
        app: str,
        token: str | None = None,
        max_rows: int = 10_000,
        read_policy: ReadPolicy | ShippedPolicy[ReadPolicy] | None = None,
        write_policy: WritePolicy | ShippedPolicy[WritePolicy] | None = None,
        prefetch_policy: PrefetchPolicy | None = None,
    ) -> None:
        check_device(device)
        of_kind("cloud", cloud, Cloud, expected="the cloud of the lab, such as Cloud(lab)")
        given: Value = app
        if not isinstance(given, str) or not app or "/" in app or "\n" in app:
            raise ParameterError(
                "This is no name of an app.", where="app", found=brief(app), expected="a text without '/'"
            )
        if len(f"{device.name}/{app}") > _MAX_NAME:
            raise ParameterError(
                "The names of the device and of the app are too long.",
                where="app",
                found=brief(app, 120),
                expected=f"at most {_MAX_NAME} characters together",
            )
        _check_app(app, token, cloud.authority)
        settings = Settings(
            device.name,
            app,
            token,
            cloud.gateways,
            cloud.servers,
            whole_number("max_rows", max_rows, 1, 1 << 31),
            read_policy,
            write_policy or Now(),
            prefetch_policy,
        )
        policies = (read_policy, write_policy, prefetch_policy)
        self.installed = device.install(
            NAME,
            lambda ports: ClientMachine(ports, settings),
            name=f"{PORT}-{app}",
            watch=("loc",) if any(each is not None for each in policies) else (),
        )
        self.device = device
        self._app = app
        self._authority = cloud.authority
        self._watched = 0

    def _own_facts(self) -> dict[str, Value]:
        return {"device": self.device.name, "app": self._app}

    # -- tables

    def create(
        self,
        table: str,
        *,
        acl: Level = "app",
        apps: Sequence[str] | None = None,
        split: Sequence[str] = (),
        schema: Mapping[str, str] | None = None,
    ) -> Operation:
        """Create a table.

        Parameters
        ----------
        table : str
        acl : {'public', 'app', 'user'}
            Who comes in: everyone, apps that prove who they are, users that do.
        apps : sequence of str, optional
            The only apps that come in.
        split : sequence of str
            First keys of all partitions but the first.
        schema : mapping of str to str, optional
            ``text``, ``number``, ``boolean``, ``point`` or ``any``, by column.

        Returns
        -------
        Operation
            Its result raises :class:`~mudkit.errors.ParameterError` for a property that cannot be,
            :class:`~mudkit.errors.AccessDenied` without a token of the app, and
            :class:`~mudkit.errors.TableProblem` when there is such a table already.
        """
        properties = {"acl": acl, "apps": apps, "split": split, "schema": schema}
        return self.installed.call(Create(table, properties))

    def alter(
        self,
        table: str,
        *,
        acl: Level | None = None,
        add: Mapping[str, str] | None = None,
        remove: Sequence[str] = (),
    ) -> Operation:
        """Change a table's level, and add or remove columns; only the app that created it may."""
        properties = {"acl": acl, "add": add, "remove": remove}
        return self.installed.call(Alter(table, properties))

    def drop(self, table: str) -> Operation:
        """Delete a table with all its records; only the app that created it may."""
        return self.installed.call(Drop(table))

    # -- records

    def write(
        self,
        table: str,
        key: str | None,
        record: _Record,
        type: WriteType = "blind",  # noqa: A002 - the name of the API
        predicate: str | Predicate | None = None,
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
    ) -> Operation:
        """Write a record whole.

        When the call returns, the record is in the local store; the operation is done when the cloud has
        answered.

        Parameters
        ----------
        table : str
        key : str or None
            None: one that no other record has.
        record : mapping
            Its columns: what JSON can hold, at most 64 KiB of it.
        type : {'blind', 'conditional'}
            A conditional one succeeds only if the store has the version that is held here.
        predicate : str or Predicate, optional
            Who may see it; by default whoever comes into the table. With ``lookup`` (see :meth:`read`) the
            cloud alone can say who that is: a device shows the record only as the cloud has answered, and
            not while it is pending.
        utility : optional
            What a write policy looks at.
        data : mapping, optional
            What the writer says of itself as a reader: a conflict shows it nothing that others hide.
        callback : callable, optional
            Called with the operation when it is done.

        Returns
        -------
        Operation
            The operation, which gives the version that the store gave it. Its result raises
            :class:`~mudkit.errors.ParameterError` for a key or a record that cannot be,
            :class:`~mudkit.errors.AccessDenied`, :class:`~mudkit.errors.TableProblem`, and :class:`Conflict`
            for a conditional write.

        Raises
        ------
        ParameterError
            The record is no mapping, or there is no such type of write.
        PredicateError
            The predicate cannot be read.
        """
        return self._update(Write, table, key, dict(record), type, predicate, utility, data, callback)

    def delete(
        self,
        table: str,
        key: str,
        type: WriteType = "blind",  # noqa: A002 - the name of the API
        utility: Utility | None = None,
        data: Fields | None = None,
        callback: Callable[[Operation], None] | None = None,
    ) -> Operation:
        """Delete a record; see :meth:`write`."""
        return self._update(Delete, table, key, None, type, None, utility, data, callback)

    def read(
        self,
        table: str,
        predicate: str | Predicate | None = None,
        type: ReadType = "committed",  # noqa: A002 - the name of the API
        data: Fields | None = None,
        utility: Utility | None = None,
        sync_timestamp: float | None = None,
        callback: Callable[[Operation], None] | Callable[[Change | Fields], None] | None = None,
        *,
        latest: bool = False,
        aggregate: str | None = None,
    ) -> Operation:
        """Read the records that a predicate names and their writers show.

        Parameters
        ----------
        table : str
        predicate : str or Predicate, optional
            The condition over the record's columns and its ``key``; by default all. ``lookup('members',
            author, 'city')`` gives a column of the record of another table that has this primary key, NULL if
            this reader is not shown such a record: so the cloud is always asked, and a continuous read is
            told by what is there when a record is written.
        type : {'uncommitted', 'committed', 'committed_wio', 'continuous'}
        data : mapping, optional
            What the reader says of itself, ``receiver.…`` in writers' predicates.
        utility : Utility, optional
            What an answer is worth and costs; by default nothing held counts as fresh.
        sync_timestamp : float, optional
            The time from which a continuous read tells existing records, too, that are not older (seconds of
            the lab).
        callback : callable, optional
            Called with the operation when it is done; of a continuous read with each :class:`Change`, and
            with ``{"ended": why}`` when the cloud ends it: its token expires, the table is closed to it or
            dropped, or its predicate fails on what is written.
        latest : bool
            Ask for the store's latest versions.
        aggregate : str, optional
            The aggregates that are wanted instead of records, for instance ``"count(*), avg(speed)"``.

        Returns
        -------
        Operation
            The operation, which gives a :class:`ReadResult`, or the handle of a continuous read. Its result
            raises :class:`~mudkit.errors.ParameterError` for an aggregate that cannot be,
            :class:`~mudkit.errors.AccessDenied` and :class:`~mudkit.errors.TableProblem`, also for a table
            that ``lookup`` names, and :class:`~mudkit.errors.PredicateError` for a function that fails.

        Raises
        ------
        ParameterError
            What the reader says of itself is no mapping.
        PredicateError
            The predicate cannot be read, or a ``lookup`` does not name its table by a text.
        """
        parsed = None if predicate is None else _parsed(predicate)
        reader = {} if data is None else check_record(data, ())
        if type == "continuous":
            if sync_timestamp is not None:
                number("sync_timestamp", sync_timestamp, -1e12, 1e12)
            if parsed is None:
                parsed = Predicate("TRUE")
            self._watched += 1
            listener = f"continuous read {self._watched}"
            if callback is not None:
                self.installed.listen(listener, callback)
            return self.installed.call(Register(table, parsed, reader, sync_timestamp, listener))
        made = self.installed.call(Read(table, parsed, type, reader, utility, bool(latest), aggregate))
        if callback is not None:
            made.add_done_callback(callback)
        return made

    def update_data(self, handle: int, data: Fields) -> Operation:
        """Replace the reader data of a continuous read, for records that are written from now on."""
        return self.installed.call(
            UpdateData(whole_number("handle", handle, 0, 1 << 62), check_record(data or {}, ()))
        )

    def unregister(self, handle: int) -> Operation:
        """End a continuous read."""
        return self.installed.call(Unregister(whole_number("handle", handle, 0, 1 << 62)))

    def renew(self, token: str) -> Operation:
        """Show another token from now on, after a restart too: writes that wait for it go.

        A write that is sent with a token which has expired meanwhile is not lost: :meth:`pending` lists it as
        held until there is a token that is valid.

        Parameters
        ----------
        token : str
            A token of the same app and user.

        Returns
        -------
        Operation
            Done when the device keeps it. Its result raises :class:`~mudkit.errors.ParameterError` for a
            token of another app or user, and :class:`~mudkit.errors.AccessDenied` for one that has expired or
            is for another device.

        Raises
        ------
        AccessDenied
            It is no token of this lab.
        """
        self._authority.read(token)
        return self.installed.call(Renew(token))

    def policies(self) -> Operation:
        """Say which shipped policies are in use, by kind: version, digest, and what was refused and why."""
        return self.installed.call(Policies())

    def pending(self) -> Operation:
        """List the writes that the cloud has not answered.

        Each says by what it is held: ``held`` is ``'token'`` when its token has expired (see :meth:`renew`),
        ``'policy'`` when a write policy keeps it for ever, else None.
        """
        return self.installed.call(Pending())

    def held(self, table: str, data: Fields | None = None) -> Operation:
        """List what the device holds of a table, whoever may see it: for looking at a device from outside.

        Nothing is asked of the cloud.

        Parameters
        ----------
        table : str
        data : mapping, optional
            The data of a reader; each version says whether this one would be shown it.

        Returns
        -------
        Operation
            The operation, which gives a list of dicts with ``key, version, record, predicate, type, visible,
            age_s``; the version of what is pending is None, so is the record of what is deleted, and
            ``visible`` where only the cloud can say.
        """
        return self.installed.call(Held(table, check_record(data or {}, ())))

    def _update(
        self, operation: type[Write], table: str, key: str | None, record: Fields | None, kind: WriteType,
        predicate: str | Predicate | None, utility: Utility | None, data: Fields | None,
        callback: Callable[[Operation], None] | None,
    ) -> Operation:  # fmt: skip
        parsed = None if predicate is None else _parsed(predicate)
        asked = operation(
            table, key, record, kind, parsed, utility, {} if data is None else check_record(data, ())
        )
        made = self.installed.call(asked)
        if callback is not None:
            made.add_done_callback(callback)
        return made


def _check_app(app: str, token: str | None, authority: Authority) -> None:
    """Refuse a token of another app; one that cannot be read is left to the cloud, which says why."""
    if token is None:
        return
    try:
        proven = authority.read(token).app
    except AccessDenied:
        if not isinstance(token, str):
            raise  # the cloud takes no message with such a token
        return
    if proven != app:
        raise ParameterError(
            "This token is of another app.",
            where="token",
            found=f"app {proven!r}",
            expected=f"app {app!r}",
            remedy=f"take one for this app: lab.token(user=…, app={app!r})",
        )


def _parsed(predicate: str | Predicate) -> Predicate:
    if not isinstance(predicate, Predicate):
        predicate = Predicate(predicate)  # refuses what is no text
    tables_of(predicate)  # refuses tables without a name
    return predicate


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _waiting(
    call: Callable[Concatenate[Client, _P], Operation], result: Callable[[Operation, float], _T]
) -> Callable[Concatenate[BlockingClient, _P], _T]:
    """Return a method that calls a method of :class:`Client` and waits for its result."""

    @wraps(call)
    def wait(client: BlockingClient, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        return result(call(client.client, *arguments, **named), client.timeout_s)

    wait.__doc__ = f"{result.__doc__} See :meth:`Client.{call.__name__}`."
    vars(wait)["__signature__"] = signature(call).replace(
        return_annotation=signature(result).return_annotation
    )
    return wait


def _nothing(operation: Operation, timeout_s: float) -> None:
    """Wait until it is done."""
    operation.result(timeout_s)


def _version(operation: Operation, timeout_s: float) -> int:
    """Return the new version of the record."""
    version: int = operation.result(timeout_s)
    return version


def _records(operation: Operation, timeout_s: float) -> ReadResult | int:
    """Return the records, or the handle of a continuous read."""
    records: ReadResult | int = operation.result(timeout_s)
    return records


@check_init
class BlockingClient:
    """A client whose calls return results and raise errors.

    Parameters
    ----------
    client : Client
    timeout_s : float
        Virtual seconds that a call waits.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Cloud
    >>> lab = Lab(seed=7)
    >>> token = lab.token(user="jane", app="news")
    >>> jane = BlockingClient(Client(lab.device("jane-phone"), Cloud(lab), app="news", token=token))
    >>> jane.create("news")
    >>> jane.write("news", "a17", {"topic": "arts"})
    1
    """

    def __init__(self, client: Client, timeout_s: float = 86_400) -> None:
        self.client = client
        self.timeout_s = timeout_s

    create = _waiting(Client.create, _nothing)
    alter = _waiting(Client.alter, _nothing)
    drop = _waiting(Client.drop, _nothing)
    write = _waiting(Client.write, _version)
    delete = _waiting(Client.delete, _version)
    read = _waiting(Client.read, _records)
    update_data = _waiting(Client.update_data, _nothing)
    unregister = _waiting(Client.unregister, _nothing)


@check_calls
class PubSub:
    """Topics in a table: a message is a record with a column ``topic``, under a key of its own.

    Parameters
    ----------
    client : Client
    table : str
        One that was created.

    Examples
    --------
    >>> from mudkit import Lab
    >>> from mudkit.systems.mud import Cloud
    >>> lab = Lab(seed=7)
    >>> token = lab.token(user="jane", app="chat")
    >>> jane = Client(lab.device("jane-phone"), Cloud(lab), app="chat", token=token)
    >>> jane.create("chat").result()
    >>> chat = PubSub(jane, "chat")
    >>> handle = chat.subscribe("friends", lambda message: print(message["text"])).result()
    >>> chat.publish("friends", text="lunch?").result()
    1
    >>> lab.run(seconds=10)
    lunch?
    """

    def __init__(self, client: Client, table: str) -> None:
        self._client = client
        self._table = table

    def publish(self, topic: str, /, predicate: str | Predicate | None = None, **message: Value) -> Operation:
        """Publish a message.

        Parameters
        ----------
        topic : str
        predicate : str or Predicate, optional
            The condition over subscribers' data: it says whom the message reaches.
        **message
            Its columns.
        """
        if "topic" in message:
            raise ParameterError(
                "A message has one topic.",
                where="topic",
                found=brief(message["topic"]),
                remedy="give the topic first, and the column another name",
            )
        return self._client.write(self._table, None, {"topic": topic, **message}, predicate=predicate)

    def subscribe(
        self,
        topic: str,
        callback: Callable[[Fields], None],
        data: Fields | None = None,
        sync_timestamp: float | None = None,
    ) -> Operation:
        """Have a function called with each message of a topic.

        Parameters
        ----------
        topic : str
        callback : callable
            Called with the message's columns.
        data : mapping, optional
            What the subscriber says of itself.
        sync_timestamp : float, optional
            Also what was published before, from then on.

        Returns
        -------
        Operation
            The operation, which gives the handle that :meth:`unsubscribe` takes.
        """

        def changed(change: Change | Fields) -> None:
            if isinstance(change, Change) and change.record is not None:
                callback(change.record)

        wanted = Predicate("topic = :topic", topic=topic)
        return self._client.read(self._table, wanted, "continuous", data, None, sync_timestamp, changed)

    def unsubscribe(self, handle: int) -> Operation:
        """End a subscription."""
        return self._client.unregister(handle)
