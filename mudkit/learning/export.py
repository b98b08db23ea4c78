"""Export a policy: as the artefact that devices evaluate (Mobius 6), or as a table of nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mudkit import __version__
from mudkit.checks import check_arguments
from mudkit.learning.batching import LearntWrites
from mudkit.learning.costs import CLASSES
from mudkit.learning.policies import Always, FixedRule, LearntReads, slot_starts
from mudkit.learning.trees import CostTree
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.policies.artefact import Action
from mudkit.systems.mud.policies.policies import NEVER

if TYPE_CHECKING:
    import pandas as pd

_LOCAL, _REMOTE = 0, 1
_RULE_FEATURES: Final = ("distance", "hour", "age")


@check_arguments(types=False)
def export_policy(
    policy: Always | FixedRule | LearntReads | LearntWrites,
    version: int = 1,
    *,
    manifest: Mapping[str, Any] | None = None,
) -> Artefact:
    """Write a policy as the document that is shipped to devices.

    Parameters
    ----------
    policy : Always, FixedRule, LearntReads or LearntWrites
        Rules are written as trees of their questions.
    version : int
        Version of the document, 1 or more; a device accepts only a higher one than it has.
    manifest : mapping, optional
        How it was found, as JSON values. Versions are added, and numbers of examples and leaves of a tree.

    Returns
    -------
    Artefact
        A document whose evaluator decides as the policy does, for every input; limits of rules are compared
        as float32. A place that is not known makes a rule with a distance ask the server.

    Raises
    ------
    ParameterError
        The version is not usable.
    """
    known: dict[str, Any] = {"mudkit": __version__}
    if isinstance(policy, Always | FixedRule):
        kind, names, actions, nodes = "read", _RULE_FEATURES, ["local", "remote"], _rule_nodes(policy)
        return Artefact.create(kind, version, names, nodes, actions, manifest={**known, **(manifest or {})})
    import sklearn  # loading it takes longer than loading all of mudkit

    of_reads = isinstance(policy, LearntReads)
    of_tree: list[Action] = ["local", "remote"]
    if not of_reads:
        of_tree = [*(60.0 * minutes for minutes in CLASSES[:-1]), NEVER]
    known |= {
        "examples": policy.tree.grown.size,
        "leaves": policy.leaves,
        "scikit-learn": sklearn.__version__,
    }
    return Artefact.create(
        "read" if of_reads else "write",
        version,
        policy.names,
        tree_document(policy.tree),
        of_tree,
        density=policy.density if isinstance(policy, LearntReads) else None,
        costs=policy.costs.tolist(),
        manifest={**known, **(manifest or {})},
    )


def _rule_nodes(policy: Always | FixedRule) -> list[list[Any]]:
    """List the questions of a rule: the distance, the times between which the age differs, and the ages."""
    if isinstance(policy, Always):
        return [[_REMOTE]]
    nodes: list[list[Any]] = []
    age_min, starts = policy.ages, slot_starts(len(policy.ages))

    def leaf(action: int) -> int:
        nodes.append([action])
        return len(nodes) - 1

    def ask(feature: str, threshold: float) -> list[Any]:
        node = [_RULE_FEATURES.index(feature), threshold]
        nodes.append(node)
        return node

    def ages(first: int, past: int) -> int:
        """Add the questions of some parts of the day; return the number of the first."""
        number = len(nodes)
        if len(set(age_min[first:past])) > 1:
            # Split where the age changes, as near to the middle as it does.
            changes = [i for i in range(first + 1, past) if age_min[i] != age_min[i - 1]]
            slot = min(changes, key=lambda i: abs(2 * i - first - past))
            node = ask("hour", float(np.nextafter(starts[slot], np.float32(0))))
            node += [ages(first, slot), ages(slot, past)]
        elif age_min[first] > 0:
            node = ask("age", 60.0 * age_min[first])
            node += [leaf(_LOCAL), leaf(_REMOTE)]
        else:
            return leaf(_REMOTE)
        node.append(node[-1])  # what is not known goes the way of what is more
        return number

    if math.isfinite(policy.km):
        node = ask("distance", policy.km)
        node.append(ages(0, len(age_min)))
        node.append(leaf(_REMOTE))
        node.append(node[-1])
    else:
        ages(0, len(age_min))
    return nodes


def tree_document(tree: CostTree) -> list[list[Any]]:
    """List what is left of a tree, parents before their children."""
    grown = tree.grown
    order: list[int] = []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        order.append(node)
        if not tree.is_leaf[node]:
            waiting += [int(grown.right[node]), int(grown.left[node])]
    number = {node: i for i, node in enumerate(order)}
    return [
        [int(tree.action[node])]
        if tree.is_leaf[node]
        else [
            int(grown.feature[node]),
            float(grown.threshold[node]),
            *(number[int(child[node])] for child in (grown.left, grown.right, grown.unknown)),
        ]
        for node in order
    ]


@check_arguments(types=False)
def tree_nodes(policy: LearntReads | LearntWrites) -> pd.DataFrame:
    """List the nodes of a pruned tree, parents before their children.

    Parameters
    ----------
    policy : LearntReads or LearntWrites

    Returns
    -------
    pandas.DataFrame
        ``node, parent`` (-1: none), ``is_right`` (its parent's value is above the threshold), ``feature`` and
        ``threshold`` (of a leaf: empty, NaN), ``action`` (that a leaf here decides), ``examples``, ``leaves``
        (below it; of a leaf 1).
    """
    import pandas as pd

    tree, names = policy.tree, policy.names
    grown, of_reads = tree.grown, isinstance(policy, LearntReads)
    classes = 2 if of_reads else len(CLASSES)
    actions = ["local", "remote"]
    if not of_reads:
        actions = [*(f"{minutes:g} min" for minutes in CLASSES[:-1]), "never"]
    rows: list[tuple[Any, ...]] = []
    waiting: list[tuple[int, int, bool]] = [(0, -1, False)]
    while waiting:
        node, parent, is_right = waiting.pop()
        number_, is_leaf = len(rows), bool(tree.is_leaf[node])
        rows.append(
            (
                number_,
                parent,
                is_right,
                "" if is_leaf else names[int(grown.feature[node])],
                float("nan") if is_leaf else float(grown.threshold[node]),
                actions[int(tree.action[node])],
                int(grown.counts[node, :classes].sum()),
            )
        )
        if not is_leaf:
            waiting += [(int(grown.right[node]), number_, True), (int(grown.left[node]), number_, False)]
    columns = ["node", "parent", "is_right", "feature", "threshold", "action", "examples"]
    table = pd.DataFrame(rows, columns=columns)
    leaves = (table["feature"] == "").astype(int).tolist()
    for number_ in range(len(table) - 1, 0, -1):  # children come after their parents
        leaves[rows[number_][1]] += leaves[number_]
    return table.assign(leaves=leaves)
