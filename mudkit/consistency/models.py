"""The models, their implications, and which read type promises which, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import MappingProxyType
from typing import Final

from mudkit.errors import ParameterError, did_you_mean

__all__ = ["MODELS", "PROMISES", "Form", "Model", "implied_models", "model_of", "promising"]


class Form(Enum):
    """What has to be found for a history to meet a model."""

    ONE_VIEW = auto()
    """A sequence that is a view of all clients."""
    FORKING_VIEWS = auto()
    """A view for each client; two that share an operation agree up to it (no-join)."""
    WRITE_ORDER = auto()
    """An order of all writes that each session respects."""


@dataclass(frozen=True)
class Model:
    """Consistency model: the predicate a history must satisfy.

    Parameters
    ----------
    name : str
    form : Form
    words : str
        Requirement in one sentence.
    source : str
        Paper and section.
    implies : tuple of str
        Models that every history of this model also meets, without those that these imply.
    real_time : bool
        Whether views keep the order of operations of different clients of which one was answered before the
        other was invoked.
    invocation_order : bool
        Whether views keep the order in which a client invoked two operations, if one of them is a write.
    retracts : bool
        Whether a client may have read its own write that was refused later.
    """

    name: str
    form: Form
    words: str
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
"""All models by name, the stronger ones first."""

PROMISES: Final = MappingProxyType(
    {"committed_wio": "sequential-wio", "committed": "sequential", "uncommitted": "fork-sequential"}
)
"""What the read types of Mobius promise (Table 3). A history that mixes them promises less than each."""


def model_of(name: str) -> Model:
    """Give the model of a name.

    Raises
    ------
    ParameterError
        There is none.
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


@cache
def implied_models(name: str) -> frozenset[str]:
    """Return the names of all models that a model implies, itself included.

    Parameters
    ----------
    name : str
        One of :data:`MODELS`.
    """
    return frozenset({name}).union(*(implied_models(weaker) for weaker in model_of(name).implies))


def promising(name: str) -> frozenset[str | None]:
    """Give the read types that promise a model; reads of no type promise whatever they are asked for."""
    return frozenset(each for each, promise in PROMISES.items() if name in implied_models(promise)) | {None}
