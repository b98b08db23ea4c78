"""What is wanted, as parts of a chain need it said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mudkit.errors import ParameterError
from mudkit.experiment.tasks import Interest, Item
from mudkit.predicates import Predicate

__all__ = ["RULES", "meant_by"]

RULES: Final = ("all", "any", "each")
"""An aggregate is for those whom all its writers mean, or any of them, or each item for those of its own."""
_NAME: Final = re.compile(r"\b(item|me)\.([a-z_][a-z0-9_]*)")


def meant_by(want: Interest, items: Sequence[Item], rule: str = "all", to: str | None = None) -> Predicate:
    """Give the writer's predicate over readers (``receiver.…``) of several items together.

    What is for everybody is not for those who wrote it, by their ``name``.

    Parameters
    ----------
    want : Interest
        The predicate of each, over what there is to say of it, and over its reader.
    items : sequence of Item
    rule : {'all', 'any', 'each'}
        The rule for what several writers mean; for ``each``, one item is given.
    to : str, optional
        Only the reader that says this is her ``name``.

    Raises
    ------
    ParameterError
        There is no such rule, or nothing to write.

    Examples
    --------
    >>> old = Item("a", "ann", {"least": 60}, 10, None)
    >>> young = Item("b", "bob", {"least": 0}, 10, None)
    >>> [meant_by(Want("me.age >= item.least"), [old, young], rule)({}, receiver={"age": 20})
    ...  for rule in ("all", "any")]
    [False, True]
    """
    if rule not in RULES or not items:
        raise ParameterError(
            "Nobody can say whom this is for.",
            where="rule, items",
            found=f"{rule!r}, {len(items)} items",
            expected=f"{', '.join(RULES)}, and an item at least",
        )
    said: dict[str, Any] = {} if to is None else {"to": to}
    parts = []
    for number, item in enumerate(items):
        said.update({f"{name}_{number}": item.about.get(name) for name in want.of_item})

        def written(match: re.Match[str], number: int = number) -> str:
            return f"sender.{match[2]}_{number}" if match[1] == "item" else f"receiver.{match[2]}"

        parts.append(f"({_NAME.sub(written, want.text)})")
    text = (" OR " if rule == "any" else " AND ").join(parts)
    if to is not None:
        text = f"receiver.name = sender.to AND ({text})"
    else:
        said["writers"] = "|".join(item.sender for item in items)
        text = f"NOT coalesce(contains(sender.writers, receiver.name), FALSE) AND ({text})"
    return Predicate(text).bind(sender=said)
