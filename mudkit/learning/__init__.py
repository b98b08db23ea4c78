"""Cache policies that are learnt from a trace, and their replay against the labels that Spark computed."""

from typing import TYPE_CHECKING

from mudkit._lazy import lazy_exports

if TYPE_CHECKING:
    from mudkit.learning.batching import Batch, BatchBound, BatchTree
    from mudkit.learning.costs import COSTS, WRITE_COSTS, CostMatrix, delay_costs
    from mudkit.learning.evaluate import evaluate_reads
    from mudkit.learning.evaluate_batches import evaluate_writes
    from mudkit.learning.export import export_policy, tree_nodes
    from mudkit.learning.frontier import interpolate_frontier, read_frontier, write_frontier
    from mudkit.learning.holding import cache_completeness, min_sent_share
    from mudkit.learning.learner import Learner, PolicyVerdict
    from mudkit.learning.policies import Always, Bound, FixedRule, Tree
    from mudkit.learning.radio import RadioModel
    from mudkit.learning.search import recommend
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "COSTS",
    "WRITE_COSTS",
    "Always",
    "Batch",
    "BatchBound",
    "BatchTree",
    "Bound",
    "CostMatrix",
    "FixedRule",
    "Learner",
    "PolicyVerdict",
    "RadioModel",
    "Tree",
    "cache_completeness",
    "delay_costs",
    "evaluate_reads",
    "evaluate_writes",
    "export_policy",
    "interpolate_frontier",
    "min_sent_share",
    "read_frontier",
    "recommend",
    "tree_nodes",
    "write_frontier",
]
