"""Export a learnt tree as the artefact that devices evaluate (Mobius 6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mudkit import __version__
from mudkit.arguments import check_options
from mudkit.learning.batching import LearntWrites
from mudkit.learning.costs import CLASSES
from mudkit.learning.policies import LearntReads
from mudkit.learning.trees import CostTree
from mudkit.systems.mud import Artefact
from mudkit.systems.mud.policies.artefact import Action
from mudkit.systems.mud.policies.policies import NEVER

__all__ = ["export_tree"]


@check_options
def export_tree(
    learnt: LearntReads | LearntWrites, version: int = 1, *, manifest: Mapping[str, Any] | None = None
) -> Artefact:
    """Write a learnt tree as the document that is shipped to devices.

    Parameters
    ----------
    learnt : LearntReads or LearntWrites
    version : int
        Version of the document, 1 or more; a device accepts only a higher one than it has.
    manifest : mapping, optional
        How it was learnt, as JSON values. Numbers of examples, leaves and versions are added.

    Returns
    -------
    Artefact
        A document whose evaluator decides as scikit-learn does, for every input.

    Raises
    ------
    ParameterError
        The version is not usable.
    """
    import sklearn  # loading it takes longer than loading all of mudkit

    of_reads = isinstance(learnt, LearntReads)
    actions: list[Action] = ["local", "remote"]
    if not of_reads:
        actions = [*(60.0 * minutes for minutes in CLASSES[:-1]), NEVER]
    known = {
        "examples": learnt.tree.grown.size,
        "leaves": int(np.count_nonzero(learnt.tree.is_leaf)),
        "mudkit": __version__,
        "scikit-learn": sklearn.__version__,
    }
    return Artefact.create(
        "read" if of_reads else "write",
        version,
        learnt.names,
        _nodes(learnt.tree),
        actions,
        density=learnt.density if isinstance(learnt, LearntReads) else None,
        costs=learnt.costs.tolist(),
        manifest={**known, **(manifest or {})},
    )


def _nodes(tree: CostTree) -> list[list[Any]]:
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
