"""What parties know after a task: computed from what they held, whatever the system promises.

Who holds the content of an item in clear has read it. What is only packed is in clear
(:mod:`mudkit.fleet.unpacking`), and a text that is marked as a ciphertext, and is none, is as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mudkit.experiment.privacy import SERVERS, learnt
from mudkit.experiment.scoreboard.entry import Entry
from mudkit.systems.contrail.relay import NAME as CONTRAIL

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PHONE", "RELAY", "knowledge", "seen"]

RELAY: Final = "relay"
"""Contrail's servers, which only pass on what others have chosen, also where they stand beside others."""
PHONE: Final = "a phone"
"""Any of them: means over all."""
_ENOUGH: Final = 24
"""So many letters of an item are in no other one."""


def knowledge(entry: Entry) -> pd.DataFrame:
    """Give what parties know.

    Parameters
    ----------
    entry : Entry
        Played with ``held=True``.

    Returns
    -------
    pandas.DataFrame
        A row for each ``party``: ``servers`` (all of them together), ``relay`` (Contrail's alone, where there
        are such) and ``a phone`` (means over the phones):
        ``items_read`` (whose content it held in clear), ``items_not_for_it`` (of these, what it neither
        wanted nor published; servers want none), ``devices`` and ``pairs`` (whose names, and who with whom,
        it was told in clear), ``clear_kb`` and ``ciphertext_kb`` (that it received; of what was packed, what
        was in it).

    Raises
    ------
    ParameterError
        The lab does not keep what parties held.
    """
    import pandas as pd

    lab, testbed = entry.lab, entry.testbed
    held, facts = lab.held(), learnt(lab)
    received = held[held["how"] == "received"]
    blobs = seen(entry)
    needles = {name: item.content[:_ENOUGH].encode() for name, item in testbed.items.items()}
    read = {
        party: {name for name, needle in needles.items() if needle and needle in blob}
        for party, blob in blobs.items()
    }
    servers, relays = set(held["party"]) - set(lab.devices), _relays(entry)
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


def seen(entry: Entry) -> dict[str, bytes]:
    """Join all that a party held, with the names of fields; servers are one party, so is a relay.

    Ciphertexts are among it: nothing is found in them, unless they are none.
    """
    ledger = entry.lab.trace.held
    assert ledger is not None
    parts: dict[str, list[bytes]] = {}
    relays = _relays(entry)
    fields = {(row.party, row.field) for row in ledger.rows()}
    for party, field in sorted(fields):
        texts = [*ledger.values(party, field), field.encode()]  # a key of a mapping may be said by somebody
        parts.setdefault(party if party in entry.lab.devices else SERVERS, []).extend(texts)
        if party in relays:
            parts.setdefault(RELAY, []).extend(texts)
    return {who: b"\0".join(each) for who, each in parts.items()}


def _relays(entry: Entry) -> set[str]:
    return {name for name in entry.lab.world.hosts if name.startswith(f"{CONTRAIL}-")}
