"""Display of a learnt tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mudkit import words
from mudkit.display import Branch, View, tree
from mudkit.learning.trees import CostTree
from mudkit.systems.mud.policies.artefact import Action, action_text, question

__all__ = ["learnt_view"]

_MAX_LEVELS: Final = 3


def learnt_view(name: str, learnt: CostTree, features: Sequence[str], actions: Sequence[Action]) -> View:
    """Return the display of a learnt tree: its size, and its first levels as a picture.

    Parameters
    ----------
    name : str
    learnt : CostTree
    features : sequence of str
    actions : sequence of str or float
        Actions by number: ``local``, ``remote``; seconds, ``never``.
    """
    grown = learnt.grown
    total = max(grown.size, 1)

    def branch(node: int, level: int) -> Branch:
        action = action_text(actions[int(learnt.action[node])])
        share = words.percent(float(grown.counts[node, : grown.classes].sum()) / total)
        if learnt.is_leaf[node]:
            return Branch(action, share)
        if level == _MAX_LEVELS:
            return Branch(f"… mostly {action}", share)
        text = f"{question(features[int(grown.feature[node])], float(grown.threshold[node]))}?"
        left, right = int(grown.left[node]), int(grown.right[node])
        return Branch(text, "", branch(left, level + 1), branch(right, level + 1))

    leaves = int(np.count_nonzero(learnt.is_leaf))
    facts = {"learnt from": f"{total:,} examples", "leaves": leaves, "features": ", ".join(features)}
    notes = ["The share behind a leaf is that of the examples. figures.tree() draws all levels."]
    return View(name, facts, (), notes, picture=tree(branch(0, 0), f"Decision tree with {leaves} leaves"))
