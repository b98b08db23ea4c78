"""Figures: plotly figures, offline maps and HTML tables of runs, policies and traces.

Import the package and call a figure by its name, for instance ``figures.message_diagram(lab)``. Importing the
package loads neither plotly nor folium; the first use of a name loads its module. A figure is a
``plotly.graph_objects.Figure``, a map a ``folium.Map``; a table that lacks a column raises a ParameterError
that names it.
"""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.figures.assets import missing_map_files
    from mudkit.figures.cells import (
        answer_boxes,
        cache_hits,
        cells_over_time,
        hits_by_cell,
        reads_near_busiest,
        update_cache_hits,
    )
    from mudkit.figures.charts import (
        bar_panels,
        crossover,
        growth,
        histogram,
        policy_scatter,
        rows_over_time,
        server_load,
        signals,
    )
    from mudkit.figures.comparisons import (
        fates,
        frontier,
        latencies,
        pareto,
        side_by_side,
        tradeoff,
        update_pareto,
        waste_and_loss,
    )
    from mudkit.figures.days import learning_days
    from mudkit.figures.density import density_map
    from mudkit.figures.devices import Fleet, link_strip, location_exposure, radio_timeline
    from mudkit.figures.geometry import tile_bounds, tiles
    from mudkit.figures.histories import history
    from mudkit.figures.html_tables import holdings, party_views
    from mudkit.figures.maps import MAX_SLIDE_CELLS, area_map, cell_map, cell_slides, heat_map
    from mudkit.figures.messages import message_diagram, radiator_pushes
    from mudkit.figures.policies import (
        decisions,
        rule_firing,
        rule_search,
        sensitivity,
        tree,
        tree_outline,
        update_rule_firing,
    )
    from mudkit.figures.prefetching import (
        LimitPoint,
        limit_curve,
        message_fates,
        message_lifecycles,
        update_limit_curve,
        waste_and_loss_by_limit,
    )
    from mudkit.figures.propagation import (
        ReceivedCells,
        joining_grid,
        knowledge,
        knowledge_map,
        update_knowledge,
    )
    from mudkit.figures.regimes import regime_map
    from mudkit.figures.style import PLOTLY_CONFIG
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "MAX_SLIDE_CELLS",
    "PLOTLY_CONFIG",
    "Fleet",
    "LimitPoint",
    "ReceivedCells",
    "answer_boxes",
    "area_map",
    "bar_panels",
    "cache_hits",
    "cell_map",
    "cell_slides",
    "cells_over_time",
    "crossover",
    "decisions",
    "density_map",
    "fates",
    "frontier",
    "growth",
    "heat_map",
    "histogram",
    "history",
    "hits_by_cell",
    "holdings",
    "joining_grid",
    "knowledge",
    "knowledge_map",
    "latencies",
    "learning_days",
    "limit_curve",
    "link_strip",
    "location_exposure",
    "message_diagram",
    "message_fates",
    "message_lifecycles",
    "missing_map_files",
    "pareto",
    "party_views",
    "policy_scatter",
    "radiator_pushes",
    "radio_timeline",
    "reads_near_busiest",
    "regime_map",
    "rows_over_time",
    "rule_firing",
    "rule_search",
    "sensitivity",
    "server_load",
    "side_by_side",
    "signals",
    "tile_bounds",
    "tiles",
    "tradeoff",
    "tree",
    "tree_outline",
    "update_cache_hits",
    "update_knowledge",
    "update_limit_curve",
    "update_pareto",
    "update_rule_firing",
    "waste_and_loss",
    "waste_and_loss_by_limit",
]
