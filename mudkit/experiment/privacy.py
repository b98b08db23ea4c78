"""Privacy: knowledge of the parties, computed from what they held, not from promises."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from mudkit.checks import check_arguments
from mudkit.errors import ParameterError
from mudkit.experiment.runs import Run
from mudkit.fleet.exposure import Exposure
from mudkit.lab import Lab
from mudkit.systems.contrail.api import NAME as CONTRAIL

if TYPE_CHECKING:
    import pandas as pd

SERVERS: Final = "servers"
"""All servers of a system, which have one operator."""
_MAX_EXAMPLES: Final = 5
_MAX_EXAMPLE_BYTES: Final = 40


@check_arguments(types=False)
def contacts(lab: Lab) -> pd.DataFrame:
    """Return who was seen communicating with whom, when, and how much.

    Parameters
    ----------
    lab : Lab
        Lab with ``record_exposure=True``; of a run, ``run.lab``.

    Returns
    -------
    pandas.DataFrame
        One row for each device that a message has named: ``party`` (who received the message), ``system``,
        ``source`` and ``destination`` (for a server, the device that sent it and the one it named; a device
        learns who writes to it), ``field`` (that named it), ``ts, clear_bytes, ciphertext_bytes`` (of the
        message). A server also knows what it sends in clear. Messages between servers are left out.
    """
    import pandas as pd

    rows = []
    for mention in ledger(lab).mentions:
        if mention.party in lab.devices and mention.device != mention.party:
            source, destination = mention.device, mention.party
        elif mention.party not in lab.devices and mention.sender in lab.devices:
            source, destination = mention.sender, mention.device
        else:
            continue
        row = source, destination, mention.field, mention.t_us, mention.clear_bytes, mention.ciphertext_bytes
        rows.append((mention.party, mention.system, *row))
        if mention.party in lab.devices and mention.sender not in lab.devices:
            rows.append((mention.sender, mention.system, *row))
    columns = ["party", "system", "source", "destination", "field", "ts", "clear_bytes", "ciphertext_bytes"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["ts"] = pd.to_datetime(frame["ts"] + lab.start_us, unit="us", utc=True)
    return frame


@check_arguments(types=False)
def party_knowledge(lab: Lab) -> pd.DataFrame:
    """Return what each party learnt, summed up from :func:`contacts`.

    Parameters
    ----------
    lab : Lab

    Returns
    -------
    pandas.DataFrame
        One row per (system, party), where ``party`` is a device, or ``servers`` for all of them together:
        ``devices`` and ``pairs`` (of whom it was told, and who talks with whom), ``messages`` (that told it),
        ``first, last, clear_bytes, ciphertext_bytes`` (of these), ``stored_bytes`` (of everything).
    """
    import pandas as pd

    seen, exposed = contacts(lab), lab.exposure()
    for frame in (seen, exposed):
        frame["party"] = frame["party"].where(frame["party"].isin(list(lab.devices)), SERVERS)
    stored = exposed[exposed["how"] == "stored"].groupby(["system", "party"])["bytes"].sum()
    rows = []
    parties: list[tuple[str, str]] = sorted(set(zip(exposed["system"], exposed["party"], strict=True)))
    for system, party in parties:
        of = seen[(seen["system"] == system) & (seen["party"] == party)]
        messages = of.drop_duplicates(["ts", "source", "clear_bytes", "ciphertext_bytes"])
        pairs = set(map(frozenset, zip(of["source"], of["destination"], strict=True)))
        devices = frozenset().union(*pairs) - {party}
        rows.append((
            system, party, len(devices), len(pairs), len(messages), of["ts"].min(), of["ts"].max(),
            int(messages["clear_bytes"].sum()), int(messages["ciphertext_bytes"].sum()),
            int(stored.get((system, party), 0)),
        ))  # fmt: skip
    columns = ["system", "party", "devices", "pairs", "messages", "first", "last", "clear_bytes",
               "ciphertext_bytes", "stored_bytes"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


@check_arguments(types=False)
def cleartext_fields(lab: Lab) -> pd.DataFrame:
    """Return what servers received in clear, by field: names, groups, white-lists, sizes, times.

    Parameters
    ----------
    lab : Lab

    Returns
    -------
    pandas.DataFrame
        One row per (system, server, field): ``values`` (different ones), ``times``, ``size_bytes`` (in all),
        ``examples`` (some of the values, as text).
    """
    exposed = lab.exposure()
    exposed = exposed[(exposed["how"] == "received") & (exposed["form"] == "clear")]
    exposed = exposed[~exposed["party"].isin(list(lab.devices))]
    values = list(map(ledger(lab).values, exposed["party"], exposed["field"]))
    examples = [
        ", ".join(value.decode(errors="replace")[:_MAX_EXAMPLE_BYTES] for value in some[:_MAX_EXAMPLES])
        for some in values
    ]
    frame = exposed[["system", "party", "field"]].assign(
        values=list(map(len, values)), times=exposed["times"], size_bytes=exposed["bytes"], examples=examples
    )
    return frame.reset_index(drop=True)


def ledger(lab: Lab) -> Exposure:
    """Return the ledger of what each party held, or raise a ParameterError."""
    if lab.trace.exposure is None:
        remedy = "make it with Lab(…, record_exposure=True), or run(…, record_exposure=True)"
        raise ParameterError("This lab does not keep what parties held.", remedy=remedy)
    return lab.trace.exposure


RELAY: Final = "relay"
"""Contrail's servers alone, which forward ciphertext."""
PHONE: Final = "a phone"
"""Mean over all phones."""
_NEEDLE: Final = 24
"""Number of first letters that identify an item."""


@check_arguments(types=False)
def knowledge(run: Run) -> pd.DataFrame:
    """Return what parties know after a task; a run without ``record_exposure=True`` raises a ParameterError.

    Parameters
    ----------
    run : Run

    Returns
    -------
    pandas.DataFrame
        A row for each ``party``: ``servers`` (all together), ``relay`` (Contrail's servers, if there are any)
        and ``a phone`` (means over the phones). Columns: ``items_read`` (held in clear),
        ``items_not_for_it`` (of these, those that it neither wanted nor published), ``devices`` and ``pairs``
        (named to it in clear), ``clear_kb`` and ``ciphertext_kb`` (received, after unpacking).
    """
    import pandas as pd

    lab, testbed = run.lab, run.testbed
    exposed, facts = lab.exposure(), party_knowledge(lab)
    received = exposed[exposed["how"] == "received"]
    blobs = _blobs(run)
    needles = {name: item.content[:_NEEDLE].encode() for name, item in testbed.items.items()}
    read = {
        party: {name for name, needle in needles.items() if needle and needle in blob}
        for party, blob in blobs.items()
    }
    servers, relays = set(exposed["party"]) - set(lab.devices), _relays(run)
    kinds = [
        (SERVERS, [SERVERS], servers),
        (RELAY, [RELAY], relays),
        (PHONE, testbed.phones, set(testbed.phones)),
    ]
    rows = []
    for kind, parties, who in kinds:
        if kind == RELAY and not relays:
            continue
        of = received[received["party"].isin(who)]
        size_kb = of.groupby("form")["bytes"].sum() / 1000 / len(parties)
        known = facts[facts["party"].isin(parties)]
        if kind == RELAY:
            known = facts[(facts["party"] == SERVERS) & (facts["system"] == CONTRAIL)]
        items = [read.get(party, set()) for party in parties]
        not_for = [
            {name for name in names if not testbed.is_for(name, party)}
            for party, names in zip(parties, items, strict=True)
        ]
        rows.append(
            {
                "party": kind,
                "items_read": sum(map(len, items)) / len(parties),
                "items_not_for_it": sum(map(len, not_for)) / len(parties),
                "devices": float(known["devices"].sum()) / len(parties),
                "pairs": float(known["pairs"].sum()) / len(parties),
                "clear_kb": float(size_kb.get("clear", 0.0)),
                "ciphertext_kb": float(size_kb.get("ciphertext", 0.0)),
            }
        )
    return pd.DataFrame(rows)


def _blobs(run: Run) -> dict[str, bytes]:
    """Join all that each party held, ciphertexts and the names of fields included; servers are one party."""
    exposure = ledger(run.lab)
    parts: dict[str, list[bytes]] = {}
    relays = _relays(run)
    fields = {(row.party, row.field) for row in exposure.rows()}
    for party, field in sorted(fields):
        texts = [*exposure.values(party, field), field.encode()]  # a key of a mapping may come from a user
        parts.setdefault(party if party in run.lab.devices else SERVERS, []).extend(texts)
        if party in relays:
            parts.setdefault(RELAY, []).extend(texts)
    return {party: b"\0".join(texts) for party, texts in parts.items()}


def _relays(run: Run) -> set[str]:
    """Return the hosts of Contrail's relay."""
    return {name for name in run.lab.world.hosts if name.startswith(f"{CONTRAIL}-")}


OTHERS: Final = "another device"
"""Any other phone or feed."""
_NUMBER: Final = re.compile(rb"-?\d+\.\d+")


@check_arguments(types=False)
def disclosures(run: Run) -> pd.DataFrame:
    """Return the shares of phones whose places and wants parties know.

    Parameters
    ----------
    run : Run
        As for :func:`knowledge`.

    Returns
    -------
    pandas.DataFrame
        Two rows, ``party`` ``servers`` (all together) and ``another device`` (at least one): shares of the
        phones, ``places`` (at least one place of the phone, without those of items) and ``interests`` (the
        longest text in which its user says what she wants, unless the party wants the same). NaN where the
        task has no places, or no such texts.
    """
    import pandas as pd

    testbed, devices = run.testbed, list(run.lab.devices)
    blobs = _blobs(run)
    routes = _routes(run)
    searched = blobs if routes else {}  # numbers are many
    numbers = {party: frozenset(_NUMBER.findall(blob)) for party, blob in searched.items()}
    wants = {phone: _longest_want(testbed.profile(phone)) for phone in testbed.phones}

    def knows_place(party: str, phone: str) -> bool:
        return any(place <= numbers.get(party, frozenset()) for place in routes[phone])

    def knows_want(party: str, phone: str) -> bool:
        return wants[phone] not in wants.get(party, b"") and wants[phone] in blobs.get(party, b"")

    placed = [phone for phone in testbed.phones if phone in routes]
    wanting = [phone for phone in testbed.phones if wants[phone]]
    rows = [
        (kind, _share(placed, parties, knows_place), _share(wanting, parties, knows_want))
        for kind, parties in ((SERVERS, [SERVERS]), (OTHERS, devices))
    ]
    return pd.DataFrame(rows, columns=["party", "places", "interests"])


def _share(phones: list[str], parties: list[str], knows: Callable[[str, str], bool]) -> float:
    """Return the share of the phones of which one of the parties knows something; NaN without phones."""
    known = [any(knows(party, phone) for party in parties if party != phone) for phone in phones]
    return sum(known) / len(known) if known else float("nan")


def _written(loc: tuple[float, float]) -> frozenset[bytes]:
    """Return the numbers of a place as they stand in what parties held."""
    return frozenset(repr(float(part)).encode() for part in loc)


def _routes(run: Run) -> dict[str, list[frozenset[bytes]]]:
    """Return the places of each phone, without those that items are about."""
    if not run.task.interest.uses_place:
        return {}
    items = run.testbed.items.values()
    places = {_written(loc) for item in items if (loc := item.metadata.get("loc")) is not None}
    phones: dict[str, list[frozenset[bytes]]] = {}
    positions = run.lab.frame("positions")
    for device, lat, lon in zip(positions["device"], positions["lat"], positions["lon"], strict=True):
        place = _written((lat, lon))
        if place not in places:
            phones.setdefault(str(device), []).append(place)
    return phones


def _longest_want(about: Mapping[str, Any]) -> bytes:
    """Return the longest text of a profile, as bytes; empty without a text."""
    return max((value for value in about.values() if isinstance(value, str)), key=len, default="").encode()
