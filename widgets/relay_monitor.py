"""RelayMonitor: one item as the sender, the relay and the receiver see it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import ipywidgets

from mudkit import figures
from mudkit.checks import check_arguments
from mudkit.errors import MudkitError
from mudkit.experiment import PartyViews, party_views
from mudkit.systems.contrail import Item
from mudkit.widgets.panel import STALE, Panel, alert, guide, read_object

_MIN_SEARCH_BYTES: Final = 3
_MAX_FIELDS: Final = 4
_WIDE: Final = {"width": "48%"}
_NOTE: Final = (
    "The item that the child publishes, and Alice's filter; Enter or Tab sends it again. Without a filter "
    "nothing is sent. <b>Look for</b> searches all bytes that a party received or stored."
)


@check_arguments(types=False)
class RelayMonitor(Panel):
    """Change an item, the filter of its receiver, or the encryption; see what each party sees.

    Each change runs a lab of two devices and a relay from the start
    (:func:`mudkit.experiment.party_views`). Invalid input shows an error and leaves the last result.
    Everything works from the keyboard.

    Parameters
    ----------
    metadata : mapping
    payload : str
    predicate : str, optional
        Filter of the receiver; None: no filter.
    **parameters
        Parameters of ``party_views``: ``item_id``, ``encrypted``, ``polling_s``, ``link``, ``seed``.

    Attributes
    ----------
    metadata, payload, predicate, name, needle : ipywidgets.Text
        The item's metadata (JSON), its payload, the filter, its name; the text to search for.
    polling : ipywidgets.BoundedFloatText
        Polling interval of Alice's device, in seconds.
    encrypted : ipywidgets.Checkbox
    problem, status, seen, matches : ipywidgets.HTML
        Error; result; what each party sees; where the text was found.
    party_views : PartyViews
        The result shown.

    Raises
    ------
    MudkitError
        The item, the filter or a parameter is invalid.
    """

    def __init__(
        self, metadata: Any, payload: str = "", predicate: str | None = None, **parameters: Any
    ) -> None:
        given: dict[str, Any] = {"item_id": "item", "encrypted": True, "polling_s": 5.0} | parameters
        self._rest = {name: given[name] for name in given if name in ("link", "seed")}
        self.metadata = _text("metadata", json.dumps(metadata), "JSON; the filter is evaluated on it")
        self.payload = _text("payload", payload, "content that the application sends")
        self.predicate = _text("filter", predicate or "", "over the metadata; empty: no filter")
        self.name = _text("name", given["item_id"], "a newer item of this name makes older ones obsolete")
        self.needle = _text("look for", "", "in all bytes that a party received or stored")
        self.polling = ipywidgets.BoundedFloatText(
            value=given["polling_s"],
            min=0.1,
            max=3600.0,
            description="polls, s",
            tooltip="polling interval of Alice's device, in seconds",
            layout=_WIDE,
        )
        self.encrypted = ipywidgets.Checkbox(value=given["encrypted"], description="encrypted", layout=_WIDE)
        self.problem, self.status, self.seen, self.matches = (ipywidgets.HTML() for _ in range(4))
        self.party_views = self._run()
        self._show()
        inputs = self.metadata, self.payload, self.predicate, self.name, self.polling, self.encrypted
        for control in inputs:
            control.observe(self._on_change, names="value")
        self.needle.observe(lambda _: self._search(), names="value")
        super().__init__(
            [
                guide(_NOTE),
                ipywidgets.HBox([self.metadata, self.payload]),
                ipywidgets.HBox([self.predicate, self.name]),
                ipywidgets.HBox([self.polling, self.encrypted]),
                self.problem,
                self.status,
                self.seen,
                self.needle,
                self.matches,
            ]
        )
        self.add_class("mudkit-relay-monitor")

    def _run(self) -> PartyViews:
        """Run a lab with the input, and return what the parties see."""
        predicate = self.predicate.value.strip() or None
        metadata = read_object("metadata", self.metadata.value, '{"loc": [37.5, -122.0]}')
        item = Item(metadata, self.payload.value.encode())
        more = {"encrypted": self.encrypted.value, "polling_s": self.polling.value, **self._rest}
        return party_views(item, predicate, item_id=self.name.value, **more)

    def _on_change(self, _: dict[str, Any]) -> None:
        """Handle changed input: show the new result, or the error."""
        try:
            self.party_views = self._run()
            self.problem.value = ""
        except MudkitError as error:
            self.problem.value = alert(STALE, error)
            return
        self._show()

    def _show(self) -> None:
        """Update the tables and the status."""
        self.seen.value = figures.party_views(self.party_views.rows)._repr_html_()
        has_filter = bool(self.predicate.value.strip())
        if self.party_views.published.destinations:
            text = "The item was uploaded" + ("." if self.encrypted.value else ", in clear.")
        else:
            why = "Alice's filter does not match" if has_filter else "no filter asks for it"
            text = f"The item did not leave the child's device: {why}. 0 bytes."
        self.status.value = f"<div role='status'><b>{text}</b></div>"
        self._search()

    def _search(self) -> None:
        """Show where the text to search for was found."""
        text = self.needle.value
        if len(text.encode()) < _MIN_SEARCH_BYTES:
            self.matches.value = "" if not text else f"Enter at least {_MIN_SEARCH_BYTES} characters."
            return
        places = self.party_views.places(text)
        lines = "".join(f"<br>{party}: {_fields(fields)}" for party, fields in places.items())
        verdict = "<b>contain</b>" if places["relay"] else "<b>do not contain</b>"
        self.matches.value = (
            f"<div style='line-height:1.5'>The {self.party_views.relay_bytes:,} bytes that the relay "
            f"received and stored {verdict} this text: {escape(text)}{lines}</div>"
        )


def _fields(names: Sequence[str]) -> str:
    """Return the names of fields as HTML."""
    shown = ", ".join(f"<code>{escape(name)}</code>" for name in names[:_MAX_FIELDS])
    more = len(names) - _MAX_FIELDS
    return (shown or "nowhere") + (f" and {more} more fields" if more > 0 else "")


def _text(description: str, value: str, tooltip: str) -> Any:
    """Build a text control, which reports its content when it is left."""
    return ipywidgets.Text(
        value=value, description=description, tooltip=tooltip, continuous_update=False, layout=_WIDE
    )
