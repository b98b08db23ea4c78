"""The packages whose names are public."""

FACES = [
    "mudkit", "mudkit.consistency", "mudkit.errors", "mudkit.events", "mudkit.exercises", "mudkit.experiment",
    "mudkit.figures", "mudkit.learning", "mudkit.pipeline", "mudkit.predicates", "mudkit.sources",
    "mudkit.systems", "mudkit.systems.contrail", "mudkit.systems.lasthop", "mudkit.systems.mud",
    "mudkit.systems.radiator", "mudkit.systems.store_and_forward", "mudkit.systems.sublim", "mudkit.trace",
    "mudkit.widgets",
]  # fmt: skip
"""Where chapters, report templates, README and docs import from; templates also from mudkit.report."""
