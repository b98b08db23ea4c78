"""When a spool forwards what waits (Last hop 4): what is chosen, and what is learnt from the reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from mudkit.errors import ParameterError, brief
from mudkit.sources.parameters import number, whole_number
from mudkit.systems.lasthop.spool.rules import Item, Situation

__all__ = ["KINDS", "LEARNT", "Forwarding"]

Kind: TypeAlias = Literal["on-line", "on-demand", "buffer", "rate", "unified", "rule"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
LEARNT: Final = "learnt"
"""A setting that the spool takes from what it has seen."""


@dataclass(frozen=True)
class Forwarding:
    """A forwarding policy.

    Parameters
    ----------
    kind : {'on-line', 'on-demand', 'buffer', 'rate', 'unified', 'rule'}
        Everything at once; nothing before it is asked for; as long as there is room on the device; as many as
        are read; Figure 7, which is ``buffer`` with everything learnt; what a function says.
    prefetch_limit : int or 'learnt'
        The largest number that lies on the device: given, or twice the moving average of how many were read
        at a time. The figure takes the number that was asked for, which is of no use when that is unlimited.
    expiration_threshold_s : float, 'learnt' or None
        What expires sooner is not prefetched; learnt: the mean waking time between reads. None: all is.
    delay_s : float, 'learnt' or None
        The time that a message waits before it may be prefetched, lest its rank falls meanwhile; learnt: as
        long as nine of ten falls of late took. None: not at all.
    rule : callable, optional
        The function of the kind ``rule``: it takes a :class:`~mudkit.systems.lasthop.spool.rules.Situation`,
        and says which messages go now. It is asked whenever the link is up and something has happened.

    Raises
    ------
    ParameterError
        There is no such kind, a number is out of range, or a rule is given or lacks where it must not.
    """

    kind: Kind = "unified"
    prefetch_limit: int | str = LEARNT
    expiration_threshold_s: float | str | None = None
    delay_s: float | str | None = None
    rule: Callable[[Situation], Iterable[Item]] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ParameterError(
                "There is no such forwarding policy.",
                where="policy",
                found=brief(self.kind),
                expected=", ".join(KINDS),
            )
        if (self.kind == "rule") != callable(self.rule):
            raise ParameterError(
                "A policy of the kind 'rule' has a rule, and no other has.",
                where="rule",
                found=brief(self.rule),
                expected="a function" if self.kind == "rule" else "None",
            )
        if self.prefetch_limit != LEARNT:
            whole_number("prefetch_limit", self.prefetch_limit, 0, 1 << 31)
        for name in ("expiration_threshold_s", "delay_s"):
            given = getattr(self, name)
            if given is not None and given != LEARNT:
                number(name, given, 0.0, 1e10)

    @classmethod
    def of(cls, given: str | Forwarding, **settings: int | float | str | None) -> Forwarding:
        """Take a policy as it is, or make one by its kind; Figure 7 learns what is not set.

        Raises
        ------
        ParameterError
            There is no such policy, or settings came beside one that has its own.
        """
        if isinstance(given, Forwarding):
            if settings:
                raise ParameterError(
                    "The policy has settings of its own.",
                    where=", ".join(settings),
                    found=brief(settings),
                    expected="these in the policy",
                    remedy="dataclasses.replace(policy, ...) changes them",
                )
            return given
        if given == "unified":
            settings = {"expiration_threshold_s": LEARNT, "delay_s": LEARNT, **settings}
        return cls(given, **settings)  # type: ignore[arg-type]
