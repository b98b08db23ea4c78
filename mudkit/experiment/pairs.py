"""One item of Contrail, and what its sender, the relay and its receiver see of it.

What the relay sees is searched for in all that its servers received or stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec

from mudkit.experiment.privacy import ledger
from mudkit.lab import Lab
from mudkit.predicates.exchange import to_json
from mudkit.sources.parameters import number
from mudkit.systems.contrail import Item, Module, Published, Relay
from mudkit.systems.contrail.device.filters import parse_filter
from mudkit.systems.contrail.items import pack

__all__ = ["RECEIVER", "SENDER", "PartyView", "PartyViews", "Visibility", "party_views"]

SENDER, RECEIVER = "child", "alice"
_RELAY: Final = "contrail"
_GATEWAY: Final = f"{_RELAY}-gateway"
_PORTS: Final = "location", "alarm"
_ALWAYS_MS: Final = 1e9
_MAX_POLLING_S: Final = 3600.0
_SHOWN_BYTES: Final = 8


class Visibility(NamedTuple):
    """Form in which a party sees a thing.

    Parameters
    ----------
    form : {'clear', 'ciphertext', 'nothing'}
    text : str
    """

    form: Literal["clear", "ciphertext", "nothing"]
    text: str = ""


class PartyView(NamedTuple):
    """Something about the item, and what each party sees of it.

    Parameters
    ----------
    what : str
    sender, relay, receiver : Visibility
    """

    what: str
    sender: Visibility
    relay: Visibility
    receiver: Visibility


@dataclass(frozen=True)
class PartyViews:
    """Result of sending an item.

    Parameters
    ----------
    rows : tuple of PartyView
    published : Published
    lab : Lab
        The lab in which it was sent.
    """

    rows: tuple[PartyView, ...]
    published: Published
    lab: Lab

    @property
    def relay_bytes(self) -> int:
        """Bytes that the servers of the relay received and stored, with all copies."""
        return sum(row.bytes for row in ledger(self.lab).rows() if row.party.startswith(f"{_RELAY}-"))

    def places(self, text: str) -> dict[str, list[str]]:
        """Return the fields in which each party held a text."""
        places: dict[str, list[str]] = {SENDER: [], "relay": [], RECEIVER: []}
        for party, field, _ in ledger(self.lab).find(text):
            places["relay" if party.startswith(f"{_RELAY}-") else party].append(field)
        return {party: sorted(set(fields)) for party, fields in places.items()}


_NOTHING: Final = Visibility("nothing")


def party_views(
    item: Item,
    predicate: str | None,
    *,
    item_id: str = "item",
    encrypted: bool = True,
    polling_s: float = 5.0,
    link: str = "umts_3g",
    seed: int = 1,
) -> PartyViews:
    """Publish an item on a child's device, and return what it, the relay and Alice's device see of it.

    Parameters
    ----------
    item : Item
    predicate : str, optional
        Filter that Alice's device installs on the child's; None: none.
    item_id : str
    encrypted : bool
    polling_s : float
        Polling interval of Alice's device, in seconds, at most 3,600.
    link : str
    seed : int

    Raises
    ------
    PredicateError
        The filter is none.
    ParameterError
        The item is none, or a parameter is out of range.
    """
    number("polling_s", polling_s, 0.1, _MAX_POLLING_S)
    pack(item)  # refuses what is no item before anything is built
    lab = Lab(seed, record_held=True)
    relay = Relay(lab, name=_RELAY)
    modules = [
        Module(lab.device(me, link=link), relay, friends=[other], encrypted=encrypted)
        for me, other in ((SENDER, RECEIVER), (RECEIVER, SENDER))
    ]
    out = modules[0].open_port(_PORTS[0], polling_interval_ms=0, idle_timeout_ms=_ALWAYS_MS)
    alarm = modules[1].open_port(_PORTS[1], polling_interval_ms=1000 * polling_s)
    received: list[tuple[Any, Item]] = []
    alarm.on_item(lambda item: received.append((lab.now, item)))
    lab.run(seconds=5)
    if predicate is not None:
        alarm.install_filter(predicate, to=(SENDER, _PORTS[0])).result()
    lab.run(seconds=10)
    began, before = lab.now, _carried(lab)
    published = out.publish(item, item_id).result()
    lab.run(seconds=polling_s + 10)
    went = bool(published.destinations)
    received_at, taken = received[0] if received else (None, None)
    times = [began if went else None, _arrival(lab, began) if went else None, received_at]
    up, down = (after - earlier for after, earlier in zip(_carried(lab), before, strict=True))
    rows = [
        _filter(lab, predicate, went),
        *_content(lab, item, taken),
        _key(lab, went),
        *_header(lab, item_id, published),
        PartyView("when", *map(_moment, times)),
        PartyView("bytes", Visibility("clear", f"{up:,} B"), _size(up), _size(0 if taken is None else down)),
    ]
    return PartyViews(tuple(rows), published, lab)


def _filter(lab: Lab, predicate: str | None, went: bool) -> PartyView:
    if predicate is None:
        return PartyView(
            "filter",
            Visibility("nothing", "there is none"),
            _NOTHING,
            Visibility("nothing", "none installed"),
        )
    sent = to_json(parse_filter(predicate))
    assert sent is not None
    text: str = sent["text"]
    relay = _relay(lab, msgspec.json.encode(text)[1:-1], text, _sealed(lab)[:1])
    does = "matches" if went else "does not match"
    return PartyView(
        "filter", Visibility("clear", f"{predicate}\n({does})"), relay, Visibility("clear", predicate)
    )


def _content(lab: Lab, item: Item, taken: Item | None) -> Iterator[PartyView]:
    """Yield the parts of the item; a party with all of it in clear has each part."""
    packed, bodies = pack(item), ledger(lab).values(_GATEWAY, "message.body")
    for name in item.metadata:
        texts = [_NOTHING if copy is None else _written(copy.metadata[name]) for copy in (item, taken)]
        yield PartyView(name, texts[0], _relay(lab, packed, texts[0].text, bodies), texts[1])
    texts = [_NOTHING if copy is None else _written(copy.payload) for copy in (item, taken)]
    yield PartyView("payload", texts[0], _relay(lab, packed, texts[0].text, bodies), texts[1])


def _key(lab: Lab, went: bool) -> PartyView:
    if not went:
        return PartyView("key", _NOTHING, _NOTHING, _NOTHING)
    store = lab.devices[RECEIVER].processes[0].store
    secret = store.get(f"key {SENDER}\n{_PORTS[0]}\n{1:012d}")
    sight = Visibility("clear", "32 secret bytes")
    relay = _relay(lab, secret, sight.text, _sealed(lab)[-1:])
    return PartyView("key", sight, relay, sight)


def _header(lab: Lab, item_id: str, published: Published) -> Iterator[PartyView]:
    """Yield what a relay must know to pass an item on, in clear for everybody who gets it."""
    for what, field, text in (
        ("from", "message.port", f"{SENDER}, port {_PORTS[0]}"),
        ("to", "message.to[].tag", f"{RECEIVER}, port {_PORTS[1]}"),
        ("name", "message.item", item_id),
    ):
        seen = Visibility("clear", text) if published.destinations else _NOTHING
        yield PartyView(what, seen, seen if ledger(lab).values(_GATEWAY, field) else _NOTHING, seen)


def _relay(lab: Lab, needle: bytes, text: str, sealed: Sequence[bytes]) -> Visibility:
    """Return what the relay has: the thing itself, a ciphertext, or nothing."""
    if any(party.startswith(f"{_RELAY}-") for party, *_ in ledger(lab).find(bytes(needle))):
        return Visibility("clear", text)
    if not sealed:
        return _NOTHING
    return Visibility("ciphertext", f"{len(sealed[0])} B, {sealed[0][:_SHOWN_BYTES].hex(' ')} …")


def _sealed(lab: Lab) -> list[bytes]:
    """Return what the relay was sent sealed for one device: the filter, then the key."""
    return ledger(lab).values(_GATEWAY, "message.to[].sealed")


def _carried(lab: Lab) -> tuple[int, int]:
    """Return the bytes that the sender has sent, and that the receiver has received."""
    bill = lab.bill().set_index(["device", "direction"])["bytes"]
    return int(bill[SENDER, "up"]), int(bill[RECEIVER, "down"])


def _arrival(lab: Lab, began: Any) -> Any:
    """Return when the item was at the relay."""
    sent = lab.frame("messages")
    sent = sent[(sent["source"] == SENDER) & (sent["kind"] == "send") & (sent["sent"] >= began)]
    return sent["ended"].max()


def _moment(at: Any) -> Visibility:
    return _NOTHING if at is None else Visibility("clear", f"{at:%H:%M:%S.%f}"[:10])


def _size(size_bytes: int) -> Visibility:
    return Visibility("clear", f"{size_bytes:,} B") if size_bytes else _NOTHING


def _written(value: Any) -> Visibility:
    if isinstance(value, bytes):
        try:
            return Visibility("clear", value.decode())
        except UnicodeDecodeError:
            return Visibility("clear", f"{len(value):,} B, {value[:_SHOWN_BYTES].hex(' ')} …")
    return Visibility("clear", msgspec.json.encode(value).decode())
