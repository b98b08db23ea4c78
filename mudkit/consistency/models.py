"""Consistency models: definitions, implications, promises of read types, and orders of operations."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from mudkit.checks import check_arguments
from mudkit.consistency.operation import precedes
from mudkit.errors import ParameterError, did_you_mean

if TYPE_CHECKING:
    from mudkit.consistency.record import Reading


class Form(Enum):
    """Condition for a history to satisfy a model."""

    ONE_VIEW = auto()
    """A sequence that is a view of all clients."""
    FORKING_VIEWS = auto()
    """A view for each client; two views that share an operation agree up to it (no-join)."""
    WRITE_ORDER = auto()
    """An order of all writes that each session respects."""


@check_arguments(types=False)
@dataclass(frozen=True)
class Model:
    """Consistency model: the predicate a history must satisfy.

    Parameters
    ----------
    name : str
        Name of the model.
    form : Form
        What must exist for a history to satisfy the model.
    description : str
        The definition in a sentence.
    source : str
        Paper and section.
    implies : tuple of str
        Models that every history of this model satisfies, without those that they imply themselves.
    real_time : bool
        Whether views keep the order of operations of different clients, the first answered before the second
        was invoked.
    invocation_order : bool
        Whether views keep the order in which a client invoked two operations, if one of them is a write.
    retracts : bool
        Whether a client may have read its own write that was rejected later.
    """

    name: str
    form: Form
    description: str
    source: str
    implies: tuple[str, ...] = ()
    real_time: bool = False
    invocation_order: bool = False
    retracts: bool = False


_SESSION: Final = ("monotonic-reads", "read-your-writes", "monotonic-writes", "writes-follow-reads")
_TERRY: Final = "Terry et al., Session guarantees for weakly consistent replicated data, PDIS 1994, section"

_TABLE: Final = (
    Model(
        "linearizable", Form.ONE_VIEW,
        "One order of all operations fits all clients, and what was over before something else began comes "
        "before it.",
        "Herlihy and Wing, TOPLAS 1990; Mobius 4.1",
        ("sequential", "fork-linearizable"), real_time=True,
    ),
    Model(
        "sequential-wio", Form.ONE_VIEW,
        "One order of all operations fits all clients, and keeps the order in which each client invoked its "
        "writes.",
        "Mobius, appendix A, definition 2", ("sequential",), invocation_order=True,
    ),
    Model(
        "sequential", Form.ONE_VIEW, "One order of all operations fits all clients.",
        "Lamport 1979; Mobius, appendix A, definition 1", ("fork-sequential",),
    ),
    Model(
        "fork-linearizable", Form.FORKING_VIEWS,
        "Each client has a view in which what was over before something else began comes before it, and "
        "views that share an operation agree up to it.",
        "Cachin, Shelat and Shraer, PODC 2007; Mobius 4.1", ("fork-sequential",), real_time=True,
    ),
    Model(
        "fork-sequential", Form.FORKING_VIEWS,
        "Each client has a view, and views that share an operation agree up to it.",
        "Oprea and Reiter, DISC 2006; Mobius, appendix A, definition 3",
        ("fork-sequential-retracted", *_SESSION),
    ),
    Model(
        "fork-sequential-retracted", Form.FORKING_VIEWS,
        "As fork-sequential, once the writes that were refused are set aside together with what their own "
        "clients read of them before they knew.",
        "mudkit: what the protocol of Mobius 4.2 keeps where it breaks definition 3", retracts=True,
    ),
    Model(
        "monotonic-reads", Form.WRITE_ORDER,
        "There is an order of the writes in which no client's reads of one type go back.",
        f"{_TERRY} 3.2; Mobius 4.1",
    ),
    Model(
        "read-your-writes", Form.WRITE_ORDER,
        "There is an order of the writes in which no client reads anything older than a write of its own "
        "that was over before.",
        f"{_TERRY} 3.1",
    ),
    Model(
        "monotonic-writes", Form.WRITE_ORDER,
        "There is an order of the writes that keeps the order of each client's writes.",
        f"{_TERRY} 3.4",
    ),
    Model(
        "writes-follow-reads", Form.WRITE_ORDER,
        "There is an order of the writes in which each write comes after those that its client had read.",
        f"{_TERRY} 3.3",
    ),
)  # fmt: skip

MODELS: Final = MappingProxyType({model.name: model for model in _TABLE})
"""All models by name, stronger models first."""

PROMISES: Final = MappingProxyType(
    {"committed_wio": "sequential-wio", "committed": "sequential", "uncommitted": "fork-sequential"}
)
"""Model that each read type of Mobius promises (Table 3); a history that mixes types satisfies less."""


def model_of(name: str) -> Model:
    """Return the model of a name.

    Raises
    ------
    ParameterError
        There is no such model.
    """
    if name not in MODELS:
        raise ParameterError(
            "There is no such model.",
            where="model",
            found=repr(name),
            expected=", ".join(MODELS),
            remedy=did_you_mean(name, MODELS),
        )
    return MODELS[name]


@check_arguments(types=False)
@cache
def implied_models(name: str) -> frozenset[str]:
    """Return the names of all models that a model implies, including itself.

    Parameters
    ----------
    name : str
        Name of a model.
    """
    return frozenset({name}).union(*(implied_models(weaker) for weaker in model_of(name).implies))


def promising(name: str) -> frozenset[str | None]:
    """Return the read types that promise a model; reads without a type count for every model."""
    return frozenset(type_ for type_, promise in PROMISES.items() if name in implied_models(promise)) | {None}


KNOWN: Final = "was known to the client of"
BEFORE: Final = "was over before its client invoked"
INVOKED: Final = "was invoked by its client before"
REAL_TIME: Final = "was over before another client invoked"
VERSION: Final = "has an older version than"


class Edge(NamedTuple):
    """Node ``first`` comes before node ``then``, and why; ``by`` names other operations that cause it."""

    first: int
    then: int
    why: str
    by: tuple[int, int] | None = None


def must_precede(reading: Reading, model: Model) -> list[int]:
    """Return for each operation the set, as bits, of those before it in every view that contains both.

    Takes quadratic time; only the search uses it.
    """
    operations = reading.operations
    before = [0] * len(operations)
    for then, later in enumerate(operations):
        for first, earlier in enumerate(operations):
            if first == then:
                continue
            versions = reading.versions[first], reading.versions[then]
            if earlier.client == later.client:
                holds = precedes(earlier, later, first < then) or (
                    model.invocation_order and first < then and (earlier.is_write or later.is_write)
                )
            else:
                holds = (
                    model.real_time
                    and earlier.answered_us is not None
                    and earlier.answered_us < later.invoked_us
                )
            if holds or (versions[0] is not None and versions[1] is not None and versions[0] < versions[1]):
                before[then] |= 1 << first
    for place, write in reading.expects:
        before[place] |= 1 << write
    return before
