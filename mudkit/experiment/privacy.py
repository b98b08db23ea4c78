"""What parties learnt: computed from what they held, whatever the system, not from what it promises.

A message tells who receives it which devices it names in clear, when, and how large it is. So much of who
talks to whom is known even to who only sees ciphertext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mudkit.errors import ParameterError
from mudkit.fleet.exposure import Held
from mudkit.lab import Lab

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SERVERS", "contacts", "learnt", "shown"]

SERVERS: Final = "servers"
"""All servers of a system: who runs one of them, runs all."""
_EXAMPLES: Final = 5
_EXAMPLE: Final = 40


def contacts(lab: Lab) -> pd.DataFrame:
    """Return who was seen communicating with whom, when, and how much.

    Parameters
    ----------
    lab : Lab
        A lab that keeps what parties held; of a run, ``run.lab``.

    Returns
    -------
    pandas.DataFrame
        One row for each device that a message has named: ``party`` (who received the message), ``system``,
        ``source`` and ``destination`` (for a server, the device that sent it and the one it named; a device
        learns who writes to it), ``field`` (that named it), ``ts``, ``clear_bytes``, ``ciphertext_bytes`` (of
        the whole message). What a server tells a device in clear it knows, too. What servers tell each other
        is left out: they know it already.
    """
    import pandas as pd

    rows = []
    for each in _held(lab).mentions:
        if each.party in lab.devices and each.device != each.party:
            source, destination = each.device, each.party
        elif each.party not in lab.devices and each.sender in lab.devices:
            source, destination = each.sender, each.device
        else:
            continue
        row = source, destination, each.field, each.t_us, each.clear_bytes, each.ciphertext_bytes
        rows.append((each.party, each.system, *row))
        if each.party in lab.devices and each.sender not in lab.devices:
            rows.append((each.sender, each.system, *row))
    columns = ["party", "system", "source", "destination", "field", "ts", "clear_bytes", "ciphertext_bytes"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["ts"] = pd.to_datetime(frame["ts"] + lab.start_us, unit="us", utc=True)
    return frame


def learnt(lab: Lab) -> pd.DataFrame:
    """Sum up what each party learnt, for the table of a scoreboard.

    Parameters
    ----------
    lab : Lab

    Returns
    -------
    pandas.DataFrame
        One row per (system, party), where ``party`` is a device, or ``servers`` for all of them together:
        ``devices`` and ``pairs`` (of whom it was told, and who talks with whom), ``messages`` (that told it),
        ``first``, ``last``, ``clear_bytes`` and ``ciphertext_bytes`` (of these messages), ``stored_bytes``
        (of everything).
    """
    import pandas as pd

    seen, held = contacts(lab), lab.held()
    for frame in (seen, held):
        frame["party"] = frame["party"].where(frame["party"].isin(list(lab.devices)), SERVERS)
    stored = held[held["how"] == "stored"].groupby(["system", "party"])["bytes"].sum()
    rows = []
    parties: list[tuple[str, str]] = sorted(set(zip(held["system"], held["party"], strict=True)))
    for system, party in parties:
        of = seen[(seen["system"] == system) & (seen["party"] == party)]
        messages = of.drop_duplicates(["ts", "source", "clear_bytes", "ciphertext_bytes"])
        pairs = {frozenset(each) for each in zip(of["source"], of["destination"], strict=True)}
        devices = frozenset().union(*pairs) - {party}
        rows.append((
            system, party, len(devices), len(pairs), len(messages), of["ts"].min(), of["ts"].max(),
            int(messages["clear_bytes"].sum()), int(messages["ciphertext_bytes"].sum()),
            int(stored.get((system, party), 0)),
        ))  # fmt: skip
    columns = ["system", "party", "devices", "pairs", "messages", "first", "last", "clear_bytes",
               "ciphertext_bytes", "stored_bytes"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def shown(lab: Lab, system: str | None = None) -> pd.DataFrame:
    """Return what servers received in clear, by field: names, groups, white-lists, sizes, times.

    Parameters
    ----------
    lab : Lab
    system : str, optional
        Only of this one.

    Returns
    -------
    pandas.DataFrame
        One row per (system, server, field): ``values`` (different ones), ``times``, ``size_bytes`` (in all),
        ``examples`` (some of the values, as text).
    """
    held = lab.held()
    held = held[(held["how"] == "received") & (held["form"] == "clear")]
    held = held[~held["party"].isin(list(lab.devices))]
    if system is not None:
        held = held[held["system"] == system]
    ledger = _held(lab)
    values = [ledger.values(*each) for each in zip(held["party"], held["field"], strict=True)]
    rows = [
        ", ".join(each.decode(errors="replace")[:_EXAMPLE] for each in some[:_EXAMPLES]) for some in values
    ]
    frame = held[["system", "party", "field"]].assign(
        values=[len(each) for each in values], times=held["times"], size_bytes=held["bytes"], examples=rows
    )
    return frame.reset_index(drop=True)


def _held(lab: Lab) -> Held:
    if lab.trace.held is None:
        raise ParameterError(
            "This lab does not keep what parties held.", remedy="make it with Lab(…, record_held=True)"
        )
    return lab.trace.held
