"""What goes wrong between modules, and with clouds."""

from __future__ import annotations

from mudkit.errors import MudkitError

__all__ = ["KeysChanged", "QueueFull", "TamperedMessage"]


class KeysChanged(MudkitError, RuntimeError):
    """A friend has other keys than before: its device was wiped, or is another one."""


class QueueFull(MudkitError, RuntimeError):
    """Too much waits already, on this device or for another one; what was asked for was not begun."""


class TamperedMessage(MudkitError, ValueError):
    """A message is not as its sender made it, or not from who it says; it has been dropped (Contrail 3.3)."""
