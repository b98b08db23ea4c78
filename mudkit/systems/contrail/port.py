"""What a notebook holds of an open port: filters go out, items go out and come in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from mudkit.arguments import check_calls
from mudkit.errors import ParameterError, brief
from mudkit.events import Installed, Operation
from mudkit.predicates import Predicate
from mudkit.predicates.exchange import to_json
from mudkit.sources.parameters import number, of_kind, whole_number
from mudkit.systems.contrail.device.filters import acceptances, parsed
from mudkit.systems.contrail.device.inbox import listener
from mudkit.systems.contrail.device.receiving import decisions
from mudkit.systems.contrail.items import Item, check_name, pack

__all__ = ["Group", "Port"]

_US_PER_MS: Final = 1_000
_MOST_S: Final = 1e9
_MOST_MS: Final = 1e12


class Group(msgspec.Struct, frozen=True):
    """A group of publishers (Contrail 3.4.3).

    Parameters
    ----------
    name : str
    rule : str, optional
        A predicate over what a device knows of itself: it is in the group as long as that is true.
    """

    name: str
    rule: str | None = None


@check_calls
class Port:
    """An open port: one application's end of everything (Contrail 3.2, 4.1).

    Parameters
    ----------
    installed : Installed
        The module.
    device : str
    name : str
    on_filter : callable, optional
    polling_interval_ms, idle_timeout_ms : float
    batch_size : int
    """

    def __init__(
        self,
        installed: Installed,
        device: str,
        name: str,
        on_filter: Callable[[Predicate, str], bool] | None = None,
        *,
        polling_interval_ms: float = 30_000,
        idle_timeout_ms: float = 0,
        batch_size: int = 1,
    ) -> None:
        self.device, self.name = device, name
        self._installed = installed
        self._parameters = {
            "polling_us": _us("polling_interval_ms", polling_interval_ms),
            "idle_us": _us("idle_timeout_ms", idle_timeout_ms),
            "batch": whole_number("batch_size", batch_size, 1, 1 << 31),
        }
        self._on_filter = on_filter
        self._on_item: Callable[[Item], Any] | None = None
        self._taken: set[int] = set()
        if on_filter is not None:
            self._installed.listen(decisions(name), self._decide)
        self._installed.listen(listener(name), self._came)
        self.open()

    def open(self) -> None:
        """Tell the module of it, and also one that has begun anew; filters are to be installed again then."""
        asks = self._on_filter is not None
        self._taken.clear()
        self._installed.call("open", port=self.name, parameters=self._parameters, asks=asks)
        if self._on_item is not None:
            self._installed.call("listen", port=self.name)

    # -- parameters

    @property
    def polling_interval_ms(self) -> float:
        """How long the module sleeps between two connections; the smallest of its ports counts."""
        return self._parameters["polling_us"] / _US_PER_MS

    @polling_interval_ms.setter
    def polling_interval_ms(self, value: float) -> None:
        self._configure("polling_us", _us("polling_interval_ms", value))

    @property
    def idle_timeout_ms(self) -> float:
        """How long a connection stays open when nothing waits; the largest of the module's ports counts."""
        return self._parameters["idle_us"] / _US_PER_MS

    @idle_timeout_ms.setter
    def idle_timeout_ms(self, value: float) -> None:
        self._configure("idle_us", _us("idle_timeout_ms", value))

    @property
    def batch_size(self) -> int:
        """How many messages of this port wait until the module pushes everything; 1: none do."""
        return self._parameters["batch"]

    @batch_size.setter
    def batch_size(self, value: int) -> None:
        self._configure("batch", whole_number("batch_size", value, 1, 1 << 31))

    def _configure(self, name: str, value: int) -> None:
        self._parameters[name] = value
        self._installed.call("configure", port=self.name, parameters={name: value})

    # -- filters

    def install_filter(
        self,
        predicate: str | Predicate,
        to: tuple[str | Group, str],
        *,
        item_expires_s: float | None = None,
        lifetime_s: float | None = None,
        replaces: int | None = None,
    ) -> Operation:
        """Ask for items of a friend, or of the friends in a group.

        A filter says what is sent, not what may be read: all whose filters match something at a port share
        its key, and a relay that helped one of them could hand over what her filter leaves out.

        Parameters
        ----------
        predicate : str or Predicate
            The filter, over the metadata of an item.
        to : (str or Group, str)
            A device or a group, and a port there.
        item_expires_s : float, optional
            How long an item that matches is wanted.
        lifetime_s : float, optional
            The time after which the filter ends, in seconds; None: it stays.
        replaces : int, optional
            The filter in whose place this one stands.

        Returns
        -------
        Operation
            The operation, which gives the filter's number and is done when a relay has it.
        """
        given: Any = to
        target, remote = given if isinstance(given, tuple) and len(given) == 2 else (None, None)
        if not isinstance(target, str | Group):
            raise ParameterError(
                "A filter goes to a device or a group, and a port there.",
                where="to",
                found=brief(to),
                expected='("child", "location")',
            )
        of_kind("predicate", predicate, str, Predicate, expected="a condition, such as \"what = 'photo'\"")
        if replaces is not None:
            whole_number("replaces", replaces, 0, 1 << 62)
        group = check_name("a group", target.name) if isinstance(target, Group) else None
        return self._installed.call(
            "install",
            port=self.name,
            to=None if group is not None else check_name("a device", target),
            group=group,
            remote=check_name("a port", remote),
            predicate=to_json(parsed(predicate)),
            item_expires_us=_lasts_us("item_expires_s", item_expires_s),
            lifetime_us=_lasts_us("lifetime_s", lifetime_s),
            slot=replaces,
        )

    def remove_filter(self, slot: int) -> Operation:
        """Take an own filter back."""
        return self._installed.call("remove", slot=whole_number("slot", slot, 0, 1 << 62))

    def on_accepted(self, callback: Callable[[Predicate, str], Any]) -> None:
        """Call ``callback`` with each filter that matches here from then on, and whose it is.

        An application may publish again then what it has already.
        """
        self._installed.listen(
            acceptances(self.name), lambda acceptance: callback(acceptance["filter"], acceptance["who"])
        )

    def _decide(self, question: Mapping[str, Any]) -> None:
        assert self._on_filter is not None
        accepted = False  # also when the application fails to decide
        try:
            accepted = bool(self._on_filter(question["filter"], question["who"]))
        finally:
            self._installed.call("decide", key=question["key"], accepted=accepted)

    # -- items

    def publish(
        self,
        item: Item,
        item_id: str | None = None,
        expires_s: float | None = None,
        *,
        only: Collection[str] | None = None,
        called: str | None = None,
    ) -> Operation:
        """Send an item to those who have asked for it (Contrail 3.2).

        Parameters
        ----------
        item : Item
        item_id : str, optional
            A newer item of this name makes the older ones obsolete; the same content again is a
            retransmission. By default a name that no other item has.
        expires_s : float, optional
            How long it is of use.
        only : collection of str, optional
            Devices: others do not get it, even if they asked for it.
        called : str, optional
            What the deliveries call it; by default the device, the port, the item's name and a number.

        Returns
        -------
        Operation
            The operation, which gives a :class:`Published` or a :class:`Backlogged`.
        """
        if item_id is not None and check_name("an item", item_id).startswith("~"):
            raise ParameterError(
                "Names with '~' are given to items without one.",
                where="item_id",
                found=item_id,
                expected="a name that begins otherwise, or none",
            )
        if only is not None:
            of_kind("only", only, list, tuple, set, frozenset, expected='names of devices, such as ["bob"]')
        return self._installed.call(
            "publish",
            port=self.name,
            item=item_id,
            packed=pack(item, None if called is None else check_name("a delivery", called)),
            expires_us=_lasts_us("expires_s", expires_s),
            only=None if only is None else sorted(only),
        )

    def receive_item(self) -> Operation:
        """Wait for the next item: an operation of an :class:`Item`."""
        operation = self._installed.call("receive", port=self.name, numbers=sorted(self._taken))
        operation.add_done_callback(self._received)
        return operation

    def receive_all(self) -> Operation:
        """Take what has come, without waiting: an operation of a list of :class:`Item`."""
        operation = self._installed.call("receive all", port=self.name, numbers=sorted(self._taken))
        operation.add_done_callback(self._received)
        return operation

    def on_item(self, callback: Callable[[Item], Any]) -> None:
        """Call ``callback`` with each item that comes, and with those that wait."""
        self._on_item = callback
        self._installed.call("listen", port=self.name)

    def _received(self, operation: Operation) -> None:
        try:
            given = operation.result()
        except Exception:  # whoever waits for the operation gets it
            return
        items = given if isinstance(given, list) else [given]
        if items:
            self._take([item.number for item in items])

    def _came(self, item: Item) -> None:
        if item.number in self._taken:
            self._take([item.number])  # the module was killed before it heard that this application has it
        elif self._on_item is not None:
            self._take([item.number])
            self._on_item(item)

    def _take(self, numbers: Collection[int]) -> None:
        self._taken.update(numbers)
        taking = self._installed.call("taken", port=self.name, numbers=numbers)
        taking.add_done_callback(lambda operation: self._forget(operation, numbers))

    def _forget(self, operation: Operation, numbers: Collection[int]) -> None:
        """Forget what the module knows that this application has: it hands that over no more."""
        try:
            operation.result()
        except Exception:  # it was killed: it is told again
            return
        self._taken.difference_update(numbers)


def _us(name: str, given_ms: float) -> int:
    return round(number(name, given_ms, 0.0, _MOST_MS) * _US_PER_MS)


def _lasts_us(name: str, given_s: float | None) -> int | None:
    return None if given_s is None else round(number(name, given_s, 1e-6, _MOST_S) * 1e6)
