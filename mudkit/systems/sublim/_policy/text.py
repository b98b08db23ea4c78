"""Text of a policy: YAML as plain data with the line of each part, and errors that name the line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol, TypeAlias

import yaml

from mudkit.errors import MudkitError, brief
from mudkit.wire import Value

MAX_TEXT: Final = 65_536
"""Maximum length of a policy's text, characters."""

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list positions that lead to a part of a policy, from its root."""


class PolicyError(MudkitError, ValueError):
    """A policy cannot be read or set.

    Parameters
    ----------
    summary : str
        The problem in one sentence.
    line : int, optional
        Line in the text that the policy was read from, from 1.
    found, expected, remedy, where : str, optional
        As in :class:`mudkit.errors.MudkitError`.
    """

    def __init__(self, summary: str, *, line: int | None = None, **fields: str | None) -> None:
        super().__init__(summary, **fields)
        self.line = line

    def __reduce__(self) -> tuple[partial[PolicyError], tuple[str]]:
        texts = {name: getattr(self, name) for name in ("found", "expected", "remedy", "where")}
        return partial(PolicyError, line=self.line, **texts), (self.summary,)


class Places:
    """Lines of the parts of a policy, for errors. Without ``lines``, errors name the path of a part."""

    def __init__(self, source: str = "", lines: Mapping[Path, int] | None = None) -> None:
        self.source = source
        self.lines = lines or {}

    def line(self, path: Path) -> int | None:
        """Return the line of a part, or of its closest ancestor with a line."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def where(self, path: Path) -> str:
        """Return source, line and path of a part."""
        line = self.line(path)
        named = ".".join(_write_part(part) for part in path)
        place = f"{self.source}, line {line}" if self.source else f"line {line}"
        parts: Sequence[str] = [place, named] if line is not None else [self.source, named]
        return ": ".join(part for part in parts if part)

    def error(self, path: Path, summary: str, **fields: str | None) -> PolicyError:
        """Return an error about a part of the policy, with its place."""
        return PolicyError(summary, line=self.line(path), where=self.where(path), **fields)

    @contextmanager
    def at(self, path: Path) -> Iterator[None]:
        """Return a context in which errors get the place of a part."""
        try:
            yield
        except PolicyError as error:
            if error.where is not None:
                raise
            raise self.error(
                path, error.summary, found=error.found, expected=error.expected, remedy=error.remedy
            ) from None
        except MudkitError as error:
            shown = f"{self.where(path)}\n            {error.where}" if error.where else self.where(path)
            raise PolicyError(
                error.summary,
                line=self.line(path),
                where=shown,
                found=error.found,
                expected=error.expected,
                remedy=error.remedy,
            ) from error


def _write_part(part: str | int) -> str:
    """Return a part of a path for an error: a key, or a position from 1."""
    return f"{part + 1}" if isinstance(part, int) else str(part)


_MAX_POLICY_DEPTH: Final = 12
_DEPTHS: Final = f"at most {_MAX_POLICY_DEPTH} levels"
_KNOWN: Final = ("map", "seq", "null", "bool", "int", "float", "str")


class _Mark(Protocol):
    """Position in the text: a mark of either YAML parser."""

    @property
    def line(self) -> int:
        """Line, from 0."""


def read_yaml(text: str, source: str) -> tuple[Value, Places]:
    """Parse YAML into plain data and the places of its parts; errors call the text ``source``.

    Rejects what a policy does not need: aliases, tags, duplicate keys, deep nesting.
    """
    places = Places(source)
    if len(text) > MAX_TEXT:
        raise places.error(
            (), "The text is too long.", found=f"{len(text)} characters", expected=f"at most {MAX_TEXT}"
        )
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            # Checked while parsing: PyYAML takes minutes to compose thousands of levels.
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_POLICY_DEPTH:
                raise _error_at(places, event.start_mark, "The nesting is too deep.", expected=_DEPTHS)
            if isinstance(event, yaml.AliasEvent):
                raise _error_at(
                    places, event.start_mark, "A policy cannot contain aliases.", found=f"*{event.anchor}"
                )
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(str(part) for part in (error.problem, error.context) if part)
        raise _error_at(places, mark, "This is not YAML.", found=problem) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise places.error((), "This is not YAML.", found=str(error).splitlines()[0]) from None
    if root is None:
        raise places.error((), "The policy is empty.", expected="policy: …, rules: […]")
    lines: dict[Path, int] = {}
    reader = _PlainReader(places, lines)
    plain = reader.read_node(root, ())
    return plain, Places(source, lines)


class _PlainReader:
    """Converter of YAML nodes to plain data, which records the line of each part in ``lines``."""

    def __init__(self, places: Places, lines: dict[Path, int]) -> None:
        self._places = places
        self._lines = lines
        self._scalars = yaml.SafeLoader("")

    def read_node(self, node: yaml.Node, path: Path) -> Value:
        """Return a node as plain data, and record the lines below it."""
        self._lines[path] = node.start_mark.line + 1
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _KNOWN:
            raise self._error(
                node,
                "A policy cannot contain this kind of value.",
                found=node.tag.rsplit(":", 1)[-1],
                expected="numbers, truth values, texts",
                remedy="put a text into quotation marks",
            )
        if isinstance(node, yaml.MappingNode):
            return self._read_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read_node(item, (*path, place)) for place, item in enumerate(node.value)]
        try:
            scalar: Value = self._scalars.construct_object(node)
            return scalar
        except (yaml.YAMLError, ValueError):
            raise self._error(node, "This value cannot be read.", found=brief(node.value)) from None

    def _read_mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Value]:
        """Return a mapping as plain data; raise PolicyError for a duplicate name or one that is no text."""
        mapping: dict[str, Value] = {}
        for key, value in node.value:
            name = key.value
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise self._error(key, "A name must be a text.", found=str(name)[:40])
            if name in mapping:
                raise self._error(key, f"Duplicate name {name!r}.", found=name)
            mapping[name] = self.read_node(value, (*path, name))
            self._lines[(*path, name)] = key.start_mark.line + 1
        return mapping

    def _error(self, node: yaml.Node, summary: str, **fields: str) -> PolicyError:
        """Return an error at the line of a node."""
        return _error_at(self._places, node.start_mark, summary, **fields)


def _error_at(places: Places, mark: _Mark | None, summary: str, **fields: str) -> PolicyError:
    """Return an error at the line of a mark; without a mark, about the whole text."""
    line = None if mark is None else mark.line + 1
    where = places.source if line is None else f"{places.source}, line {line}".removeprefix(", ")
    return PolicyError(summary, line=line, where=where or None, **fields)
