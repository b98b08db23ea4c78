"""YAML as plain data, with the line of each part."""

from __future__ import annotations

from typing import Final, Protocol

import yaml

from mudkit.errors import brief
from mudkit.systems.sublim._policy.limits import MAX_TEXT
from mudkit.systems.sublim._policy.problems import Path, Places, PolicyError
from mudkit.wire import Value

__all__ = ["read_yaml"]

_MAX_DEPTH: Final = 12
_DEPTHS: Final = f"at most {_MAX_DEPTH} levels"
_KNOWN: Final = ("map", "seq", "null", "bool", "int", "float", "str")


class _Mark(Protocol):
    """Place in the text: a mark of either parser of YAML."""

    @property
    def line(self) -> int: ...


def read_yaml(text: str, source: str) -> tuple[Value, Places]:
    """Read a text.

    Parameters
    ----------
    text : str
    source : str
        What errors call it.

    Returns
    -------
    plain : object
    places : Places

    Raises
    ------
    PolicyError
        It is too long or no YAML, or has what no policy needs: an alias, a tag, a name that stands twice.
    """
    places = Places(source)
    if len(text) > MAX_TEXT:
        raise places.error(
            (), "The text is too long.", found=f"{len(text)} characters", expected=f"at most {MAX_TEXT}"
        )
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            # Before all of it is read: what is nested thousands of times takes YAML minutes.
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                raise _error(places, event.start_mark, "This is nested too deep.", expected=_DEPTHS)
            if isinstance(event, yaml.AliasEvent):
                raise _error(places, event.start_mark, "A policy has no aliases.", found=f"*{event.anchor}")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(part) for part in (error.problem, error.context) if part)
        raise _error(places, mark, "This is not YAML.", found=problem) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise places.error((), "This is not YAML.", found=str(error).splitlines()[0]) from None
    if root is None:
        raise places.error((), "There is nothing in this policy.", expected="policy: …, rules: […]")
    lines: dict[Path, int] = {}
    reader = _Reader(places, lines)
    plain = reader.plain(root, ())
    return plain, Places(source, lines)


class _Reader:
    def __init__(self, places: Places, lines: dict[Path, int]) -> None:
        self._places = places
        self._lines = lines
        self._scalars = yaml.SafeLoader("")

    def plain(self, node: yaml.Node, path: Path) -> Value:
        """Give a node as plain data, and note the lines below it."""
        self._lines[path] = node.start_mark.line + 1
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _KNOWN:
            raise self._error(
                node,
                "This kind of value is not for a policy.",
                found=node.tag.rsplit(":", 1)[-1],
                expected="numbers, truth values, texts",
                remedy="put a text into quotation marks",
            )
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.plain(each, (*path, place)) for place, each in enumerate(node.value)]
        try:
            scalar: Value = self._scalars.construct_object(node)
            return scalar
        except (yaml.YAMLError, ValueError):
            raise self._error(node, "This value cannot be read.", found=brief(node.value)) from None

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Value]:
        mapping: dict[str, Value] = {}
        for key, value in node.value:
            name = key.value
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise self._error(key, "A name is a text.", found=str(name)[:40])
            if name in mapping:
                raise self._error(key, f"The name {name!r} stands twice.", found=name)
            mapping[name] = self.plain(value, (*path, name))
            self._lines[(*path, name)] = key.start_mark.line + 1
        return mapping

    def _error(self, node: yaml.Node, summary: str, **fields: str) -> PolicyError:
        return _error(self._places, node.start_mark, summary, **fields)


def _error(places: Places, mark: _Mark | None, summary: str, **fields: str) -> PolicyError:
    line = None if mark is None else mark.line + 1
    where = places.source if line is None else f"{places.source}, line {line}".removeprefix(", ")
    return PolicyError(summary, line=line, where=where or None, **fields)
