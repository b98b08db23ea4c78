"""Displays of what a system installs on hosts."""

from __future__ import annotations

from mudkit.display import Displayed, View
from mudkit.events import Installed
from mudkit.wire import Fields


class OnHost(Displayed):
    """Object of a system's API with a machine on a host.

    A machine's method ``overview()`` returns the view of its state. A machine without one is shown by its
    host and state only.
    """

    installed: Installed

    def _view(self) -> View:
        """Return the view of the object: where its machine is, and the machine's own overview."""
        machine = self.installed.machine
        overview = getattr(machine, "overview", None)
        inner = View("") if overview is None else overview()
        calls = len(self.installed.open)
        return View(
            qualified_name(self),
            {
                "at": self.installed.address,
                "state": self.installed.state,
                **self._own_facts(),
                **inner.facts,
                "open calls": calls or None,
            },
            inner.tables,
        )

    def _own_facts(self) -> Fields:
        """Return facts of the object itself, which are shown beside those of the machine."""
        return {}


def qualified_name(shown: Displayed) -> str:
    """Return the name of the object's class with its system, for example ``mud.Client``."""
    kind = type(shown)
    parts = kind.__module__.split(".")
    return f"{parts[2]}.{kind.__name__}" if parts[:2] == ["mudkit", "systems"] else kind.__name__
