"""What a trace teaches about caching: policies, and their replay against the labels that Spark computed."""

from mudkit.learning.costs import COSTS, CostMatrix
from mudkit.learning.evaluate import evaluate_reads
from mudkit.learning.policies import Always, Bound, FixedRule

__all__ = ["COSTS", "Always", "Bound", "CostMatrix", "FixedRule", "evaluate_reads"]
