"""A laboratory for one question: what should reach a phone, when, and at what cost.

Importing this package loads none of its heavy parts; take them by name, for instance
``from mudkit import Lab, show, trace, pipeline, learning``.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit import (
        consistency,
        errors,
        events,
        exercises,
        experiment,
        figures,
        learning,
        pipeline,
        predicates,
        report,
        sources,
        systems,
        trace,
        widgets,
        words,
        worlds,
    )
    from mudkit.display import show
    from mudkit.files import work_folder
    from mudkit.fleet import ServerProfile
    from mudkit.lab import Lab
    from mudkit.tokens import Authority
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Authority",
    "Lab",
    "ServerProfile",
    "__version__",
    "consistency",
    "errors",
    "events",
    "exercises",
    "experiment",
    "figures",
    "learning",
    "pipeline",
    "predicates",
    "report",
    "show",
    "sources",
    "systems",
    "trace",
    "widgets",
    "words",
    "work_folder",
    "worlds",
]

__version__ = "0.3.0"
