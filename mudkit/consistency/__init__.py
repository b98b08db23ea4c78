"""Consistency checks: histories of operations, models, verdicts with explanations.

The definitions are those of Mobius (MobiSys 2012, section 4.1 and appendix A). ``record`` resolves which
write each operation saw; ``session``, ``versions`` and ``search`` decide a model, chosen by ``deciding``;
``checker`` combines the records and explains the result.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.consistency.checker import check, views
    from mudkit.consistency.history import History
    from mudkit.consistency.models import MODELS, PROMISES, Model, implied_models
    from mudkit.consistency.operation import NOTHING, Content, Kind, Operation, Outcome
    from mudkit.consistency.record import seen_writes
    from mudkit.consistency.verdict import Explanation, Status, Step, Verdict
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "MODELS",
    "NOTHING",
    "PROMISES",
    "Content",
    "Explanation",
    "History",
    "Kind",
    "Model",
    "Operation",
    "Outcome",
    "Status",
    "Step",
    "Verdict",
    "check",
    "implied_models",
    "seen_writes",
    "views",
]
