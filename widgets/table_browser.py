"""TableBrowser: a MUD table live, with what each device holds, what is pending, and who sees what."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Final

import ipywidgets

from mudkit import figures
from mudkit.errors import MudkitError, OperationLost, ParameterError
from mudkit.events import Operation
from mudkit.lab import Lab
from mudkit.systems.mud import Client, Conflict, ReadResult, freshness
from mudkit.systems.mud.device.read_path import READ_TYPES
from mudkit.systems.mud.device.write_path import WRITE_TYPES
from mudkit.widgets.panel import Panel, alert, read_object

__all__ = ["TableBrowser"]

_MOST_ASKED: Final = 6
_WIDE: Final = {"width": "36%"}
_EXAMPLE: Final = '{"age": 34}'
_NOTE: Final = (
    "Time stands still until you run on. A write is in its device's store at once, and <b>pending</b> until "
    "the cloud has answered. Each column is a client with its reader. Of a record that its writer hides from "
    "this reader, only the condition is shown."
)


class TableBrowser(Panel):
    """Write, delete and read as any client, run the lab on, cut links, and see who holds and sees what.

    Invalid input shows an error and changes nothing. All of it works from the keyboard.

    Parameters
    ----------
    lab : Lab
    clients : mapping of str to Client
        The clients by the name under which each is shown: a client has a device, an app, and a token or none.
    table : str
        One that was created.
    readers : mapping of str to mapping, optional
        What the reader of each client says of itself at first.

    Attributes
    ----------
    client, kind, how : ipywidgets.Dropdown
        Who acts; the type of a read; the type of a write.
    reader, predicate, key, record, writer : ipywidgets.Text
        The reader's data (JSON); a read's predicate; a record's key, its columns (JSON), and its writer's
        predicate.
    max_age : ipywidgets.BoundedFloatText
        Seconds for which what a device was told counts as fresh.
    write, delete, read, link, some_seconds, some_minutes : ipywidgets.Button
    problem, status, held, asked : ipywidgets.HTML
        What cannot be; the time, the device and its bill; who holds what; what was asked and answered.

    Raises
    ------
    ParameterError
        There is no client.
    """

    def __init__(
        self,
        lab: Lab,
        clients: Mapping[str, Client],
        table: str,
        readers: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if not clients:
            raise ParameterError("Somebody must look at the table.", where="clients", found="none")
        self._lab, self._clients, self._table = lab, dict(clients), table
        self._readers = {name: dict((readers or {}).get(name, {})) for name in clients}
        self._asked: list[tuple[str, Operation]] = []
        self._is_changing = False
        first = next(iter(self._clients))
        self.client = ipywidgets.Dropdown(options=list(self._clients), value=first, description="client")
        self.reader = _text("reader", '{"age": 34}', "what the reader says of itself, as JSON")
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
        self.problem, self.status, self.held, self.asked = (ipywidgets.HTML() for _ in range(4))
        self.client.observe(self._chosen, names="value")
        self.reader.continuous_update = False
        self.reader.observe(self._reads_as, names="value")
        self._chosen({})
        super().__init__(
            [
                ipywidgets.HTML(_NOTE),
                ipywidgets.HBox([self.client, self.reader]),
                ipywidgets.HBox([self.kind, self.predicate, self.max_age, self.read]),
                ipywidgets.HBox([self.key, self.record]),
                ipywidgets.HBox([self.how, self.writer, self.write, self.delete]),
                ipywidgets.HBox([self.link, self.some_seconds, self.some_minutes]),
                self.problem,
                self.status,
                self.held,
                self.asked,
            ]
        )
        self.add_class("mudkit-table-browser")

    # -- what is done

    def _button(self, name: str, does: Callable[[], Any], tooltip: str) -> Any:
        button = ipywidgets.Button(description=name, tooltip=tooltip)
        button.on_click(lambda _: self._try(does))
        return button

    def _try(self, does: Callable[[], Any]) -> None:
        """Do something, tell what cannot be, and show how things are then."""
        try:
            does()
            self.problem.value = ""
        except MudkitError as error:
            self.problem.value = alert("Nothing was done.", error)
        self._show()

    def _write(self) -> None:
        key, record = self.key.value.strip() or None, read_object("record", self.record.value, _EXAMPLE)
        writer = self.writer.value.strip() or None
        written = self._now.write(self._table, key, record, self.how.value, writer, data=self._reader_data())
        self._note(f"{self.how.value} write of {key or 'a new key'}", written)

    def _delete(self) -> None:
        key = self.key.value.strip()
        deleted = self._now.delete(self._table, key, self.how.value, data=self._reader_data())
        self._note(f"{self.how.value} delete of {key}", deleted)

    def _read(self) -> None:
        where = self.predicate.value.strip() or None
        reading = self._now.read(
            self._table,
            where,
            self.kind.value,
            data=self._reader_data(),
            utility=freshness(self.max_age.value),
        )
        self._note(f"{self.kind.value} read of {where or 'all'}", reading)

    def _reader_data(self) -> dict[str, Any]:
        """Take what the reader says of itself."""
        self._readers[self.client.value] = read_object("reader", self.reader.value.strip() or "{}", _EXAMPLE)
        return self._readers[self.client.value]

    def _reads_as(self, _: dict[str, Any]) -> None:
        if not self._is_changing:
            self._try(self._reader_data)

    def _switch(self) -> None:
        name = self._now.device.name
        faults = self._lab.faults
        (faults.cut if self._lab.devices[name].is_online else faults.mend)(name)

    def _chosen(self, _: dict[str, Any]) -> None:
        self._is_changing = True
        self.reader.value = json.dumps(self._readers[self.client.value])
        self._is_changing = False
        self._show()

    @property
    def _now(self) -> Client:
        """Who acts now."""
        return self._clients[self.client.value]

    def _note(self, what: str, operation: Operation) -> None:
        self._asked.insert(0, (f"{self.client.value}: {what}", operation))
        del self._asked[_MOST_ASKED:]

    # -- what is shown

    def _show(self) -> None:
        held = {name: self._held(name) for name in self._clients}
        self.held.value = figures.holdings(
            held, self._readers, title=f"The table {self._table} on each device."
        )._repr_html_()
        device = self._lab.devices[self._now.device.name]
        self.link.description = "cut the link" if device.is_online else "restore the link"
        bill = self._lab.bill()
        mine = bill[bill["device"] == device.name]
        pending = sum(each["version"] is None for each in held[self.client.value])
        self.status.value = (
            f"<div role='status'>{self._lab.now:%Y-%m-%d %H:%M:%S} UTC. <b>{escape(self.client.value)}</b> "
            f"{'has a network' if device.is_online else 'has <b>no network</b>'}, {pending} pending, "
            f"{mine['messages'].sum():,} messages, {mine['bytes'].sum():,} bytes, "
            f"{mine['radio_mj'].sum() / 1000:,.1f} J of its radio.</div>"
        )
        self.asked.value = "".join(
            f"<div><b>{escape(what)}</b>: {_outcome(operation)}</div>" for what, operation in self._asked
        )

    def _held(self, name: str) -> list[dict[str, Any]]:
        try:
            rows: list[dict[str, Any]] = (
                self._clients[name].holdings(self._table, self._readers[name]).result()
            )
        except OperationLost:  # its device is off, or its machine was killed
            return []
        return rows


def _text(description: str, placeholder: str, tooltip: str) -> Any:
    return ipywidgets.Text(description=description, placeholder=placeholder, tooltip=tooltip, layout=_WIDE)


def _outcome(operation: Operation) -> str:
    """Say what was answered, as HTML."""
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
        return number + (result._repr_html_() if len(result) else "")
    return f"✓ version {result}"


def _conflicting(conflict: Conflict) -> str:
    """Say which three records a conflict is about."""
    three = {"the store has": conflict.store, "this was": conflict.local, "based on": conflict.base}
    note = (
        f"{name} {'nothing' if each is None or each['data'] is None else json.dumps(each['data'])}"
        for name, each in three.items()
    )
    return f" {escape('; '.join(note))}."
