"""Learner: a pure function from usage to policies, which the policy generator calls (Mobius 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mudkit.systems.mud.policies.artefact import Artefact

if TYPE_CHECKING:
    import pyarrow as pa


class LearntPolicy(NamedTuple):
    """A policy that pays for the clients of an app; the generator gives it its version.

    Parameters
    ----------
    app : str
    artefact : Artefact
        One of each kind and table. Its only leaf ``own`` takes back the one before.
    """

    app: str
    artefact: Artefact


class Learnt(Protocol):
    """Policies that were learnt of one or several apps: the result of :func:`mudkit.pipeline.mine`."""

    @property
    def policies(self) -> Sequence[LearntPolicy]:
        """The policies, at most one of an app, kind and table."""
        ...


class Learner(Protocol):
    """Learns policies from what devices have reported; :class:`mudkit.learning.Learner` is one."""

    def learn(self, usage: pa.Table, seed: int) -> Sequence[LearntPolicy]:
        """Return the policies that are to be in use from now on, at most one of an app, kind and table.

        Others stay as they are. The same usage and seed give the same policies.

        Parameters
        ----------
        usage : pyarrow.Table
            The sample, with the columns of :data:`mudkit.trace.schema.USAGE`, in the order of reports.
        seed : int
        """
        ...
