"""RelayMonitor: one item, and what the sender, the relay and the receiver each see of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from typing import Any, Final

import ipywidgets

from mudkit import figures
from mudkit.errors import MudkitError
from mudkit.experiment import PartyViews, party_views
from mudkit.systems.contrail import Item
from mudkit.widgets.panel import LAST, Panel, alert, read_object

__all__ = ["RelayMonitor"]

_LEAST_LOOKED_FOR: Final = 3
_MOST_FIELDS: Final = 4
_WIDE: Final = {"width": "48%"}
_NOTE: Final = (
    "What the child publishes, and what Alice has asked for; Enter or Tab sends it anew. Without a filter "
    "nothing travels. <b>Look for</b> searches every byte that anybody received or stored."
)


class RelayMonitor(Panel):
    """Change an item, the filter that waits for it, or whether anything is encrypted; see who sees what.

    Each change plays a lab of two devices and a relay from its beginning
    (:func:`mudkit.experiment.party_views`). What cannot be is told, and the last that could
    stays. All of it works from the keyboard.

    Parameters
    ----------
    metadata : mapping
    payload : str
    wanted : str, optional
        The filter; None: there is none.
    **parameters
        Parameters of ``party_views``: ``item_id``, ``encrypted``, ``polling_s``, ``link``, ``seed``.

    Attributes
    ----------
    metadata, payload, wanted, name, needle : ipywidgets.Text
        The item's metadata (JSON), its payload, the filter, its name; what to look for.
    polling : ipywidgets.BoundedFloatText
        Seconds from one look of Alice's device to the next.
    encrypted : ipywidgets.Checkbox
    problem, status, seen, matches : ipywidgets.HTML
        What cannot be; what came of it; who sees what; where the text was found.
    party_views : Sights
        What is shown.

    Raises
    ------
    MudkitError
        The item or the filter is none, or a parameter cannot be used.
    """

    def __init__(
        self, metadata: Any, payload: str = "", wanted: str | None = None, **parameters: Any
    ) -> None:
        given: dict[str, Any] = {"item_id": "item", "encrypted": True, "polling_s": 5.0} | parameters
        self._rest = {name: given[name] for name in given if name in ("link", "seed")}
        self.metadata = _text("metadata", json.dumps(metadata), "what the filter looks at, as JSON")
        self.payload = _text("payload", payload, "what the application sends")
        self.wanted = _text("filter", wanted or "", "over the metadata; empty: Alice has not asked")
        self.name = _text("name", given["item_id"], "a newer item of this name makes older ones obsolete")
        self.needle = _text("look for", "", "in all that anybody received or stored")
        self.polling = ipywidgets.BoundedFloatText(
            value=given["polling_s"],
            min=0.1,
            max=3600.0,
            description="polls, s",
            tooltip="seconds from one look of Alice's device to the next",
            layout=_WIDE,
        )
        self.encrypted = ipywidgets.Checkbox(value=given["encrypted"], description="encrypted", layout=_WIDE)
        self.problem, self.status, self.seen, self.matches = (ipywidgets.HTML() for _ in range(4))
        self.party_views = self._played()
        self._show()
        for each in (self.metadata, self.payload, self.wanted, self.name, self.polling, self.encrypted):
            each.observe(self._changed, names="value")
        self.needle.observe(lambda _: self._look(), names="value")
        super().__init__(
            [
                ipywidgets.HTML(_NOTE),
                ipywidgets.HBox([self.metadata, self.payload]),
                ipywidgets.HBox([self.wanted, self.name]),
                ipywidgets.HBox([self.polling, self.encrypted]),
                self.problem,
                self.status,
                self.seen,
                self.needle,
                self.matches,
            ]
        )
        self.add_class("mudkit-relay-monitor")

    def _played(self) -> PartyViews:
        wanted = self.wanted.value.strip() or None
        metadata = read_object("metadata", self.metadata.value, '{"loc": [37.5, -122.0]}')
        item = Item(metadata, self.payload.value.encode())
        more = {"encrypted": self.encrypted.value, "polling_s": self.polling.value, **self._rest}
        return party_views(item, wanted, item_id=self.name.value, **more)

    def _changed(self, _: dict[str, Any]) -> None:
        try:
            self.party_views = self._played()
            self.problem.value = ""
        except MudkitError as error:
            self.problem.value = alert(LAST, error)
            return
        self._show()

    def _show(self) -> None:
        self.seen.value = figures.party_views(self.party_views.rows)._repr_html_()
        asked = self.wanted.value.strip()
        if self.party_views.published.destinations:
            text = "The item was uploaded" + ("." if self.encrypted.value else ", in clear.")
        else:
            why = "Alice's filter does not match" if asked else "nobody has asked for it"
            text = f"The item has not left the child's device: {why}. 0 bytes."
        self.status.value = f"<div role='status'><b>{text}</b></div>"
        self._look()

    def _look(self) -> None:
        """Say who holds the text that is looked for."""
        text = self.needle.value
        if len(text.encode()) < _LEAST_LOOKED_FOR:
            self.matches.value = "" if not text else f"At least {_LEAST_LOOKED_FOR} characters, please."
            return
        places = self.party_views.places(text)
        lines = "".join(f"<br>{party}: {_fields(fields)}" for party, fields in places.items())
        held = f"The relay has received and stored {self.party_views.relay_bytes:,} bytes"
        verdict = "and this is <b>in them</b>" if places["relay"] else "and this is <b>not in them</b>"
        self.matches.value = f"<div style='line-height:1.5'>{held}, {verdict}: {escape(text)}{lines}</div>"


def _fields(names: Sequence[str]) -> str:
    """Name the fields in which a text was."""
    shown = ", ".join(f"<code>{escape(each)}</code>" for each in names[:_MOST_FIELDS])
    more = len(names) - _MOST_FIELDS
    return (shown or "nowhere") + (f" and {more} more fields" if more > 0 else "")


def _text(description: str, value: str, tooltip: str) -> Any:
    return ipywidgets.Text(
        value=value, description=description, tooltip=tooltip, continuous_update=False, layout=_WIDE
    )
