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
        """Return facts that do not come from the machine."""
        return {}


def qualified_name(shown: Displayed) -> str:
    """Return the name of an object's class, with its system: ``mud.Client``."""
    kind = type(shown)
    parts = kind.__module__.split(".")
    return f"{parts[2]}.{kind.__name__}" if parts[:2] == ["mudkit", "systems"] else kind.__name__
