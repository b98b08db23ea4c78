"""Packages with public names."""

FACES = [
    "mudkit", "mudkit.consistency", "mudkit.errors", "mudkit.events", "mudkit.exercises", "mudkit.experiment",
    "mudkit.figures", "mudkit.learning", "mudkit.pipeline", "mudkit.predicates", "mudkit.sources",
    "mudkit.systems", "mudkit.systems.contrail", "mudkit.systems.lasthop", "mudkit.systems.mud",
    "mudkit.systems.radiator", "mudkit.systems.store_and_forward", "mudkit.systems.sublim", "mudkit.trace",
    "mudkit.widgets", "mudkit.worlds",
]  # fmt: skip
"""Packages that chapters, report templates, README and docs import; templates also import mudkit.report."""
