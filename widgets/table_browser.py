"""TableBrowser: a MUD table with the records on each device, pending writes, and visibility."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Final

import ipywidgets

from mudkit import figures
from mudkit.checks import check_arguments
from mudkit.errors import MudkitError, OperationLost, ParameterError
from mudkit.events import Operation
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Conflict, ReadResult, freshness
from mudkit.systems.mud.device.new_writes import WRITE_TYPES
from mudkit.systems.mud.device.read_path import READ_TYPES
from mudkit.widgets.panel import Panel, alert, guide, read_object

_MAX_OPERATIONS: Final = 6
_WIDE: Final = {"width": "36%"}
_EXAMPLE: Final = '{"age": 34}'
_NOTE: Final = (
    "Virtual time stops until you run the lab. A write is in its device's store at once, and "
    "<b>pending</b> until the cloud has answered. Each column is a client with its reader. A record that "
    "its writer hides from a reader shows only the condition."
)


@check_arguments(types=False)
class TableBrowser(Panel):
    """Write, delete and read as any client, run the lab, cut links, and see the records of each client.

    Invalid input shows an error and changes nothing. Everything works from the keyboard.

    Parameters
    ----------
    lab : Lab
    clients : mapping of str to Client
        Clients by the name to show.
    table : str
        Name of a table that was created.
    readers : mapping of str to mapping, optional
        Initial reader data of each client.

    Attributes
    ----------
    client, kind, how : ipywidgets.Dropdown
        The acting client; the type of a read; the type of a write.
    reader, predicate, key, record, writer : ipywidgets.Text
        The reader's data (JSON); a read's predicate; a record's key, its columns (JSON), and its writer's
        predicate.
    max_age : ipywidgets.BoundedFloatText
        Age up to which records on the device count as fresh, in seconds.
    write, delete, read, link, some_seconds, some_minutes : ipywidgets.Button
    problem, status, holdings, operations : ipywidgets.HTML
        The error, if any; time, device and bill; records of each client; recent operations and answers.

    Raises
    ------
    ParameterError
        No client is given.
    """

    def __init__(
        self,
        lab: Lab,
        clients: Mapping[str, Client],
        table: str,
        readers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if not clients:
            raise ParameterError(
                "There is no client.", where="clients", found="none", expected="at least one"
            )
        self._lab, self._clients, self._table = lab, dict(clients), table
        self._readers = {name: dict((readers or {}).get(name, {})) for name in clients}
        self._operations: list[tuple[str, Operation]] = []
        self._is_changing = False
        first = next(iter(self._clients))
        self.client = ipywidgets.Dropdown(options=list(self._clients), value=first, description="client")
        self.reader = _text("reader", '{"age": 34}', "data that the reader sends about itself, as JSON")
        self.kind = ipywidgets.Dropdown(options=READ_TYPES, value="uncommitted", description="read")
        self.predicate = _text("where", "all records", "over columns and key, for instance topic = 'arts'")
        self.key = _text("key", "a1", "of the record")
        self.record = _text("record", '{"topic": "arts"}', "its columns, as JSON")
        self.writer = _text("visible to", "everyone", "writer predicate, for instance receiver.age >= 21")
        self.how = ipywidgets.Dropdown(options=WRITE_TYPES, value="blind", description="write")
        self.max_age = ipywidgets.BoundedFloatText(
            value=600.0,
            min=0.0,
            max=1e9,
            description="max age, s",
            tooltip="the device answers with records that it received at most this long ago",
        )
        self.write = self._button("write", self._write, "the whole record")
        self.delete = self._button("delete", self._delete, "the record with this key")
        self.read = self._button("read", self._read, "as this reader")
        self.some_seconds = self._button("run 10 s on", lambda: lab.run(seconds=10), "of virtual time")
        self.some_minutes = self._button("run 10 min on", lambda: lab.run(minutes=10), "of virtual time")
        self.link = self._button("", self._switch, "of this client's device")
        self.problem, self.status, self.holdings, self.operations = (ipywidgets.HTML() for _ in range(4))
        self.client.observe(self._on_choose, names="value")
        self.reader.continuous_update = False
        self.reader.observe(self._on_reader_data, names="value")
        self._on_choose({})
        super().__init__(
            [
                guide(_NOTE),
                ipywidgets.HBox([self.client, self.reader]),
                ipywidgets.HBox([self.kind, self.predicate]),
                ipywidgets.HBox([self.max_age, self.read]),
                ipywidgets.HBox([self.key, self.record]),
                ipywidgets.HBox([self.how, self.writer]),
                ipywidgets.HBox([self.write, self.delete]),
                ipywidgets.HBox([self.link, self.some_seconds, self.some_minutes]),
                self.problem,
                self.status,
                self.holdings,
                self.operations,
            ]
        )
        self.add_class("mudkit-table-browser")

    # -- actions

    def _button(self, name: str, action: Callable[[], Any], tooltip: str) -> Any:
        """Build a button for an action, whose errors are shown."""
        button = ipywidgets.Button(description=name, tooltip=tooltip)
        button.on_click(lambda _: self._try(action))
        return button

    def _try(self, action: Callable[[], Any]) -> None:
        """Call an action, show its error if it fails, and update the display."""
        try:
            action()
            self.problem.value = ""
        except MudkitError as error:
            self.problem.value = alert("Nothing was done.", error)
        self._show()

    def _write(self) -> None:
        """Write the record as the acting client."""
        key, record = self.key.value.strip() or None, read_object("record", self.record.value, _EXAMPLE)
        writer = self.writer.value.strip() or None
        operation = self._acting.write(
            self._table, key, record, self.how.value, writer, data=self._reader_data()
        )
        self._record(f"{self.how.value} write of {key or 'a new key'}", operation)

    def _delete(self) -> None:
        """Delete the record as the acting client."""
        key = self.key.value.strip()
        operation = self._acting.delete(self._table, key, self.how.value, data=self._reader_data())
        self._record(f"{self.how.value} delete of {key}", operation)

    def _read(self) -> None:
        """Read as the acting client."""
        where = self.predicate.value.strip() or None
        operation = self._acting.read(
            self._table,
            where,
            self.kind.value,
            data=self._reader_data(),
            utility=freshness(self.max_age.value),
        )
        self._record(f"{self.kind.value} read of {where or 'all'}", operation)

    def _reader_data(self) -> dict[str, Any]:
        """Parse and store the data of the current reader."""
        self._readers[self.client.value] = read_object("reader", self.reader.value.strip() or "{}", _EXAMPLE)
        return self._readers[self.client.value]

    def _on_reader_data(self, _: dict[str, Any]) -> None:
        """Handle changed reader data: store them, or show the error."""
        if not self._is_changing:
            self._try(self._reader_data)

    def _switch(self) -> None:
        """Cut the link of the acting client's device, or restore it."""
        name = self._acting.device.name
        faults = self._lab.faults
        (faults.cut if self._lab.devices[name].is_online else faults.mend)(name)

    def _on_choose(self, _: dict[str, Any]) -> None:
        """Handle the choice of a client: show its reader data."""
        self._is_changing = True
        self.reader.value = json.dumps(self._readers[self.client.value])
        self._is_changing = False
        self._show()

    @property
    def _acting(self) -> Client:
        """Client that acts."""
        return self._clients[self.client.value]

    def _record(self, description: str, operation: Operation) -> None:
        """Add an operation to the latest ones that are listed."""
        self._operations.insert(0, (f"{self.client.value}: {description}", operation))
        del self._operations[_MAX_OPERATIONS:]

    # -- display

    def _show(self) -> None:
        """Update the tables, the status and the operations."""
        holdings = {name: self._holdings(name) for name in self._clients}
        self.holdings.value = figures.holdings(
            holdings, self._readers, title=f"The table {self._table} on each device."
        )._repr_html_()
        device = self._lab.devices[self._acting.device.name]
        self.link.description = "cut the link" if device.is_online else "restore the link"
        bill = self._lab.bill()
        mine = bill[bill["device"] == device.name]
        pending = sum(record["version"] is None for record in holdings[self.client.value])
        self.status.value = (
            f"<div role='status'>{self._lab.now:%Y-%m-%d %H:%M:%S} UTC. <b>{escape(self.client.value)}</b> "
            f"{'has a network' if device.is_online else 'has <b>no network</b>'}, {pending} pending, "
            f"{mine['messages'].sum():,} messages, {mine['bytes'].sum():,} bytes, "
            f"{mine['radio_mj'].sum() / 1000:,.1f} J used by its radio.</div>"
        )
        self.operations.value = "".join(
            f"<div><b>{escape(description)}</b>: {_outcome(operation)}</div>"
            for description, operation in self._operations
        )

    def _holdings(self, name: str) -> list[dict[str, Any]]:
        """Return the records that a client's device has; none if its machine is down."""
        try:
            rows: list[dict[str, Any]] = (
                self._clients[name].holdings(self._table, self._readers[name]).result()
            )
        except OperationLost:  # its device is off, or its machine was killed
            return []
        return rows


def _text(description: str, placeholder: str, tooltip: str) -> Any:
    """Build a text control."""
    return ipywidgets.Text(description=description, placeholder=placeholder, tooltip=tooltip, layout=_WIDE)


def _outcome(operation: Operation) -> str:
    """Return the outcome of an operation as HTML."""
    if not operation.done():
        return "no answer yet"
    try:
        result = operation.result()
    except MudkitError as error:
        if isinstance(error, Conflict):
            return f"✗ Conflict: {escape(error.summary)}{_conflicting(error)}"
        return f"✗ {type(error).__name__}<pre>{escape(str(error))}</pre>"
    if isinstance(result, ReadResult):
        number = f"✓ {len(result)} record{'s' if len(result) != 1 else ''}"
        if not result.is_complete:
            number += "; others may be missing, for the device has answered alone"
        return number + (result._repr_html_() if len(result) else "")
    return f"✓ version {result}"


def _conflicting(conflict: Conflict) -> str:
    """Return the three records of a conflict as HTML."""
    records = {"the store has": conflict.store, "this was": conflict.local, "based on": conflict.base}
    texts = (
        f"{name} {'nothing' if record is None or record['data'] is None else json.dumps(record['data'])}"
        for name, record in records.items()
    )
    return f" {escape('; '.join(texts))}."
