"""Aggregability: how far messages are aggregated before they are sent to a receiver (Radiator 2.2).

The user's aggregability function returns a threshold for the current contexts of a sender and a receiver. It
must be a pure function of the two: it is applied again to pending messages whenever a message arrives, and
its result is cached while neither context changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from mudkit.checks import check_arguments
from mudkit.errors import PropagationProblem, brief
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.functions import build_problem, check_function


class Volume(msgspec.Struct, frozen=True):
    """Threshold: the number of pending messages.

    Parameters
    ----------
    value : int or callable
        Number of messages, from 1 on; 1 sends a message at once. A callable is called with the arguments of
        the aggregability function.

    Notes
    -----
    The value is checked where the function is applied: with an invalid one the message waits, and
    ``Server.problems`` names the pair.
    """

    value: int | Callable[..., int]


class People(msgspec.Struct, frozen=True):
    """Threshold: the number of different people of the pending messages.

    Parameters
    ----------
    value : int or callable
        Number of people, from 1 on; a callable as in :class:`Volume`.

    Notes
    -----
    Guaranteed if the function always returns ``People(k)`` with the same k for a receiver: each of its
    aggregates is of at least k different people, and each message is in at most one of them. Sums,
    differences and unions of its aggregates therefore consist of whole aggregates, and no message is the
    difference of two. Messages that exceed the maximum retention are dropped.

    Not guaranteed: colluding receivers may compute the difference of two aggregates, because their queues
    differ. A receiver that is among the people (with ``echo``) learns of k - 1 others. Values that all k
    people share are known of each. The default join names the people and lists their values
    (:func:`mudkit.systems.radiator.joins.people_count` does not). Senders choose the names of people freely.
    """

    value: int | Callable[..., int]


class Time(msgspec.Struct, frozen=True):
    """Threshold: the age of the oldest pending message, from its arrival at the server.

    Parameters
    ----------
    seconds : float or callable
        Age, from 0 on; a callable as in :class:`Volume`.
    """

    seconds: float | Callable[..., float]


Threshold: TypeAlias = Volume | People | Time
Function: TypeAlias = Callable[..., Threshold]


class EvaluatedThreshold(NamedTuple):
    """Threshold with its value as a number; messages with equal ones wait in one queue."""

    kind: str
    """One of volume, people and time."""
    value: int
    """Messages, people, or µs."""


_MAX_SECONDS: Final = 1e9
_MAX_VALUE: Final = 1 << 60
"""Higher values are reduced to this; no queue is that long."""


class Aggregability:
    """Function that decides how long messages wait for a receiver, with keys of receivers and senders.

    Parameters
    ----------
    function : callable
        Function of the contexts, or the keys, of sender and receiver; returns a threshold.
    key : callable, optional
        Function of the receiver's context that returns a hashable key. The aggregability function is then
        called with the key instead of the context, so receivers with equal keys form groups.
    sender_key : callable, optional
        The same for senders; a decision is cached for all senders with equal keys.

    Raises
    ------
    ParameterError
        An argument is no function, or takes other arguments than these.
    """

    @check_arguments
    def __init__(
        self,
        function: Function,
        key: Callable[[Context], Hashable] | None = None,
        sender_key: Callable[[Context], Hashable] | None = None,
    ) -> None:
        check_function("aggregability", function, ["sender", "receiver"])
        for where, declared, of in (("key", key, "receiver"), ("sender_key", sender_key, "sender")):
            if declared is not None:
                check_function(where, declared, [of])
        self.function = function
        self.key = key
        self.sender_key = sender_key
        self.name: str = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, sender: Hashable, receiver: Hashable) -> Threshold:
        """Return the threshold for two contexts or keys."""
        return self.function(sender, receiver)

    def view(self, receiver: Context) -> Hashable:
        """Return the receiver's key, or its context if no key is declared; a key must be hashable."""
        if self.key is None:
            return receiver
        view = self.key(receiver)
        hash(view)
        return view

    def decide(self, sender: Context, receiver: Hashable) -> EvaluatedThreshold:
        """Return the evaluated threshold for a sender's context and a receiver's :meth:`view`.

        Raises
        ------
        MudkitError
            The function returned no threshold, or one without a valid value.
        Exception
            The function has failed.
        """
        if self.sender_key is not None:
            return self.of_views(self.sender_key(sender), receiver)
        return self.of_views(sender, receiver)

    def of_views(self, sender: Hashable, receiver: Hashable) -> EvaluatedThreshold:
        """Return the evaluated threshold for two views; see :meth:`decide`."""
        given = self.function(sender, receiver)
        if type(given) is Volume:
            kind = "volume"
        elif type(given) is People:
            kind = "people"
        else:
            return self._decide_time(given, sender, receiver)
        value = given.value
        if type(value) is int and 0 < value <= _MAX_VALUE:
            return EvaluatedThreshold(kind, value)
        whole = _as_whole_number(value(sender, receiver) if callable(value) else value)
        if whole is None or whole < 1:
            raise _build_threshold_problem(given, "a whole number from 1 on")
        return EvaluatedThreshold(kind, min(whole, _MAX_VALUE))

    def _decide_time(self, given: Threshold, sender: Hashable, receiver: Hashable) -> EvaluatedThreshold:
        """Return the evaluated threshold of a ``Time``; raise a problem for any other value."""
        if type(given) is not Time:
            raise _build_threshold_problem(given, "Volume, People or Time")
        value = given.seconds
        if callable(value):
            value = value(sender, receiver)
        try:
            seconds = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            seconds = math.nan
        if not 0 <= seconds <= _MAX_SECONDS:
            raise _build_threshold_problem(given, f"seconds from 0 to {_MAX_SECONDS:g}")
        return EvaluatedThreshold("time", round(seconds * 1e6))

    def problem(self, error: Exception, sender: str, receiver: str) -> PropagationProblem:
        """Return the problem of an ``error`` that the function raised for a sender and a receiver."""
        return build_problem(
            f"The aggregability function {self.name}",
            error,
            where=f"{self.name}, sender {sender!r}, receiver {receiver!r}",
            expected="Volume, People or Time",
            remedy="the message waits until the function gives a threshold for it",
        )


@check_arguments
def aggregability(
    *, key: Callable[[Context], Hashable], sender_key: Callable[[Context], Hashable] | None = None
) -> Callable[[Function], Aggregability]:
    """Decorate an aggregability function with the keys by which it distinguishes receivers and senders.

    Parameters
    ----------
    key, sender_key : callable
        Functions of a context; see :class:`Aggregability`.

    Examples
    --------
    >>> @aggregability(key=lambda receiver: receiver["city"])
    ... def g(sender, city):
    ...     return Volume(1 if sender["city"] == city else 20)
    """
    return lambda function: Aggregability(function, key, sender_key)


def _as_whole_number(value: float) -> int | None:
    """Return a value as an int if it is a whole number, else None."""
    if isinstance(value, bool):
        return None
    try:
        return int(value) if int(value) == value else None
    except (TypeError, ValueError, OverflowError):
        return None


def _build_threshold_problem(given: Threshold, expected: str) -> PropagationProblem:
    """Return the problem that the function has returned something else than ``expected``."""
    return PropagationProblem("It gave no usable threshold.", found=brief(given, 200), expected=expected)
