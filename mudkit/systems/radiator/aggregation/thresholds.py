"""Aggregability: how far a message is to be aggregated before it goes to a receiver (Radiator 2.2).

A function of the programmer's gives a threshold for the current contexts of a sender and a receiver. It must
be a function of these two and of nothing else: it is applied anew to what waits whenever something comes,
and what it gave is remembered while neither context has changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple, TypeAlias

import msgspec

from mudkit.arguments import check_arguments, check_init
from mudkit.errors import PropagationProblem, brief
from mudkit.systems.radiator.aggregation.functions import check_function
from mudkit.systems.radiator.context import Context
from mudkit.systems.radiator.problems import failure

__all__ = ["Aggregability", "Function", "Key", "People", "Threshold", "Time", "Volume", "aggregability"]


class Volume(msgspec.Struct, frozen=True):
    """Threshold: the number of pending messages.

    Parameters
    ----------
    value : int or callable
        The number of messages, from 1 on; 1 lets a message go at once. A callable is given sender and
        receiver as the function is.

    Notes
    -----
    What is no such number is refused where the function is applied, for one is made for each pair: the
    message waits, and ``Server.problems`` says why, with the sender and the receiver.
    """

    value: int | Callable[..., int]


class People(msgspec.Struct, frozen=True):
    """Threshold: the number of different people that the pending messages are about.

    What is guaranteed where a function gives ``People(k)``, always with the same k, for a receiver: each
    aggregate that this receiver gets is about at least k different people, and each message is in one of its
    aggregates at most. So whatever is made of several of them, by sum, difference or union, is made of whole
    aggregates of k people or more, and no message is the difference of two. What waits too long is dropped.

    What is not: receivers who put together what they have got may find the difference of two aggregates, for
    not all wait for the same messages; a receiver who is one of the people (with ``echo``) knows of herself,
    and so of k - 1 others; values that all k have in common are known of each; the default join names the
    people and lists their values (:func:`~mudkit.systems.radiator.aggregation.joins.people_count` does not);
    and people are the names that senders give, who may give what they like.

    Parameters
    ----------
    value : int or callable
        As of :class:`Volume`.
    """

    value: int | Callable[..., int]


class Time(msgspec.Struct, frozen=True):
    """Threshold: the age of the oldest pending message, from its arrival at the server.

    Parameters
    ----------
    seconds : float or callable
        The time, from 0 on; a callable as of :class:`Volume`.
    """

    seconds: float | Callable[..., float]


Threshold: TypeAlias = Volume | People | Time
Function: TypeAlias = Callable[..., Threshold]


class Key(NamedTuple):
    """A threshold with its value: messages with equal ones wait in one queue.

    Parameters
    ----------
    kind : {'volume', 'people', 'time'}
    value : int
        Messages, people, or µs.
    """

    kind: str
    value: int


_LONGEST_S: Final = 1e9
_MOST: Final = 1 << 60
"""What is more is as much: no queue is so long."""


@check_init
class Aggregability:
    """An aggregability function, with the key by which receivers may be grouped.

    Parameters
    ----------
    function : callable
        The function of the sender's context, and of the receiver's or of its key.
    key : callable, optional
        What of the receiver's context counts. The function is then given its value and nothing else of the
        receiver: receivers with equal keys are alike.
    sender_key : callable, optional
        The same of the sender: what was decided for one is decided for all that are alike.

    Raises
    ------
    ParameterError
        One of them is no function, or takes other arguments than these.
    """

    def __init__(
        self,
        function: Function,
        key: Callable[[Context], Hashable] | None = None,
        sender_key: Callable[[Context], Hashable] | None = None,
    ) -> None:
        check_function("aggregability", function, ["sender", "receiver"])
        for where, given, of in (("key", key, "receiver"), ("sender_key", sender_key, "sender")):
            if given is not None:
                check_function(where, given, [of])
        self.function = function
        self.key = key
        self.sender_key = sender_key
        self.name: str = getattr(function, "__qualname__", type(function).__name__)

    def __call__(self, sender: Hashable, receiver: Hashable) -> Threshold:
        """Give what the function gives."""
        return self.function(sender, receiver)

    def view(self, receiver: Context) -> Hashable:
        """Give what the function may see of a receiver.

        Raises
        ------
        Exception
            What its key raises; a TypeError where its value is not hashable.
        """
        if self.key is None:
            return receiver
        view = self.key(receiver)
        hash(view)
        return view

    def decide(self, sender: Context, receiver: Hashable) -> Key:
        """Apply it, and bring what it gives to a key.

        Parameters
        ----------
        sender : Context
        receiver : object
            As :meth:`view` gave it.

        Raises
        ------
        MudkitError
            It gave no threshold, or one without a usable value.
        Exception
            What it raises.
        """
        if self.sender_key is not None:
            return self.of_views(self.sender_key(sender), receiver)
        return self.of_views(sender, receiver)

    def of_views(self, sender: Hashable, receiver: Hashable) -> Key:
        """Apply it to what it may see of both; as :meth:`decide`."""
        given = self.function(sender, receiver)
        if type(given) is Volume:
            kind = "volume"
        elif type(given) is People:
            kind = "people"
        else:
            return self._time(given, sender, receiver)
        value = given.value
        if type(value) is int and 0 < value <= _MOST:
            return Key(kind, value)
        whole = _whole(value(sender, receiver) if callable(value) else value)
        if whole is None or whole < 1:
            raise _refused(given, "a whole number from 1 on")
        return Key(kind, min(whole, _MOST))

    def _time(self, given: Threshold, sender: Hashable, receiver: Hashable) -> Key:
        if type(given) is not Time:
            raise _refused(given, "Volume, People or Time")
        value = given.seconds
        if callable(value):
            value = value(sender, receiver)
        try:
            seconds = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            seconds = math.nan
        if not 0 <= seconds <= _LONGEST_S:
            raise _refused(given, f"seconds from 0 to {_LONGEST_S:g}")
        return Key("time", round(seconds * 1e6))

    def problem(self, error: Exception, sender: str, receiver: str) -> PropagationProblem:
        """Say that it failed, for whom."""
        return failure(
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
    """Declare what of a receiver an aggregability function looks at, and what of a sender.

    Parameters
    ----------
    key : callable
        What of the receiver's context counts; its value must be hashable. The function is given it in place
        of the receiver.
    sender_key : callable, optional
        The same of the sender.

    Examples
    --------
    >>> @aggregability(key=lambda receiver: receiver["city"])
    ... def g(sender, city):
    ...     return Volume(1 if sender["city"] == city else 20)
    """
    return lambda function: Aggregability(function, key, sender_key)


def _whole(value: float) -> int | None:
    if isinstance(value, bool):
        return None
    try:
        return int(value) if int(value) == value else None
    except (TypeError, ValueError, OverflowError):
        return None


def _refused(given: Threshold, expected: str) -> PropagationProblem:
    return PropagationProblem("It gave no usable threshold.", found=brief(given, 200), expected=expected)
