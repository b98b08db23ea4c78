"""Tables: properties, partitions, columns, and access."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias
from zlib import crc32

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert, field
from msgspec.structs import replace

from mudkit.checks import one_of
from mudkit.errors import AccessDenied, ParameterError, TableProblem, did_you_mean
from mudkit.systems.mud.tables.records import SentPredicate, is_line
from mudkit.systems.receiving import Count, Name
from mudkit.tokens import Claims
from mudkit.wire import Fields, Value

Level: TypeAlias = Literal["public", "app", "user"]
LEVELS: Final[tuple[Level, ...]] = ("public", "app", "user")
"""Levels of a table's ACL, each stricter than the one before (Mobius 3.1)."""

TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "text": str,
    "number": (int, float),
    "boolean": bool,
    "point": (list, tuple, dict),
    "any": (),
}
"""Types of columns, and classes of their values; ``any`` accepts all values."""
MAX_NAME: Final = 512
"""Characters of the name of a table."""
_BUCKETS: Final = 16
"""Least number of buckets of keys of a table with fewer partitions, rounded down to a multiple of these."""


class Version(Protocol):
    """Version of a record: a row of the store, or a pending write of a client."""

    @property
    def key(self) -> str:
        """Primary key."""
        ...

    @property
    def data(self) -> Fields | None:
        """Columns; None: deleted."""
        ...

    @property
    def predicate(self) -> SentPredicate | None:
        """Writer predicate; None: every reader sees the record."""
        ...

    @property
    def lsn(self) -> float:
        """Position in the log; infinite while the write is pending."""
        ...


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """Properties of a table; also a part of messages and stores.

    ``owner`` is the app that created it, which alone alters and drops it. ``apps`` are those that have access
    at the level ``app``; None: every app with a token. ``split`` has the first keys of all partitions but the
    first. ``schema`` has the types of columns; None: any columns. ``removed`` columns read NULL; the number
    is the entry of the log with which one was added again: values of older rows read NULL still. ``number``
    is unique also among dropped tables. ``lsn`` is the entry of the last change. ``writer_predicates`` False:
    writes have none, so that all who have access see the same records; absent: they may have one.
    ``write_rule`` is the rule of who may write; absent: whom the ACL admits.
    """

    name: Name
    owner: str
    acl: Level = "app"
    apps: list[str] | None = None
    split: list[str] = field(default_factory=list)
    schema: dict[str, str] | None = None
    removed: dict[str, Count | None] = field(default_factory=dict)
    number: Count = 0
    lsn: Count = 0
    writer_predicates: bool | UnsetType = UNSET
    write_rule: SentPredicate | UnsetType = UNSET

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.split) + 1

    def partition_of(self, key: str) -> int:
        """Return the index of the partition of a key."""
        return bisect_right(self.split, key)

    def check_batch(self, keys: Sequence[str]) -> None:
        """Raise ParameterError unless keys can be those of a batch: of one partition, and each one once."""
        partitions = {key: self.partition_of(key) for key in keys}
        first = keys[0]
        other = next((key for key in keys if partitions[key] != partitions[first]), None)
        if other is not None:
            raise ParameterError(
                "All records of a batch must be in one partition.",
                where=f"a batch of the table {self.name!r}",
                found=f"{first!r} in number {partitions[first]}, {other!r} in number {partitions[other]}",
                expected=f"keys between the same two of the split {list(self.split)}",
                remedy="commit a batch for each partition, or create the table with another split",
            )
        if len(partitions) < len(keys):
            raise ParameterError(
                "A batch has one write of each record.",
                where=f"a batch of the table {self.name!r}",
                found=f"{len(keys)} writes of {len(partitions)} records",
                expected="each key once",
            )

    def buckets_of(self, keys: Iterable[str]) -> dict[int, list[str]]:
        """Return keys by bucket, sorted; a bucket holds keys of one partition only.

        The number of buckets depends on the partitions alone: about 16, or one of each partition.
        """
        per_partition = self._buckets_per_partition
        buckets: dict[int, list[str]] = {}
        for key in sorted(keys):
            bucket = self.partition_of(key) * per_partition + crc32(key.encode()) % per_partition
            buckets.setdefault(bucket, []).append(key)
        return buckets

    def partition_of_bucket(self, bucket: int) -> int:
        """Return the index of the partition that has the keys of a bucket."""
        return bucket // self._buckets_per_partition

    @property
    def _buckets_per_partition(self) -> int:
        """Number of buckets of each partition."""
        return max(1, _BUCKETS // self.partitions)

    def has_partitions(self, number: int, partitions: Sequence[int]) -> bool:
        """Return whether a number is this table's, and it has these partitions."""
        return self.number == number and all(partition < self.partitions for partition in partitions)

    def check_access(self, claims: Claims | None) -> None:
        """Raise AccessDenied if the verified claims of a client do not admit it."""
        if self.acl == "public":
            return
        if claims is None or (self.acl == "user" and claims.user is None):
            expected = "a token of an app" if self.acl == "app" else "a token of a user"
            raise AccessDenied(
                "This table is not open to you.",
                where=f"table {self.name!r}",
                found=claims_text(claims),
                expected=expected,
            )
        if self.apps is not None and claims.app not in self.apps:
            raise AccessDenied(
                "This table is not open to this app.",
                where=f"table {self.name!r}",
                found=claims_text(claims),
                expected=f"one of {', '.join(self.apps)}",
            )

    def admits(self, claims: Claims | None) -> bool:
        """Return whether :meth:`check_access` admits a client."""
        try:
            self.check_access(claims)
        except AccessDenied:
            return False
        return True

    def check_owner(self, claims: Claims | None) -> None:
        """Raise AccessDenied for any app but the one that created the table."""
        if claims is None or claims.app != self.owner:
            raise AccessDenied(
                "Only the app that created a table can alter or drop it.",
                where=f"table {self.name!r}",
                found="no token" if claims is None else f"app {claims.app!r}",
                expected=f"app {self.owner!r}",
            )

    def check_columns(self, data: Fields) -> None:
        """Raise ParameterError for a record that the schema does not allow."""
        if self.schema is None:
            return
        for column, value in data.items():
            kind = self.schema.get(column)
            if kind is None:
                raise self._no_such_column_error(column)
            fits = kind == "any" or (
                isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
            )
            if value is not None and not fits:
                raise ParameterError(
                    "This value does not fit the table's schema.",
                    where=f"table {self.name!r}, column {column!r}",
                    found=f"{type(value).__name__}: {value!r}"[:120],
                    expected=kind,
                )

    def _no_such_column_error(self, column: str) -> ParameterError:
        """Build the error for a column that the schema does not have."""
        known = self.schema or {}
        return ParameterError(
            "The table has no such column.",
            where=f"table {self.name!r}",
            found=repr(column),
            expected=", ".join(known),
            remedy=did_you_mean(column, known),
        )

    def check_predicate(self, predicate: SentPredicate | None) -> None:
        """Raise ParameterError for a writer predicate in a table without them."""
        if predicate is not None and self.writer_predicates is False:
            raise ParameterError(
                "The table has no writer predicates: its records are shown to all who have access.",
                where=f"table {self.name!r}",
                found=predicate.text[:120],
                expected="no predicate",
                remedy="create another table without writer_predicates=False",
            )

    def visible_columns(self, version: Version) -> dict[str, Value]:
        """Return the columns of a version without those that were removed after it was written."""
        data, removed = version.data or {}, self.removed
        if not removed:
            return dict(data)
        return {
            name: value
            for name, value in data.items()
            if name not in removed or ((since := removed[name]) is not None and version.lsn >= since)
        }

    def alter(self, properties: Fields, lsn: int) -> Table:
        """Return the table after ``alter``; raise ParameterError for unusable properties."""
        add = _check_schema("add", properties.get("add") or {})
        remove = _check_texts("remove", properties.get("remove") or ())
        if both := sorted(add.keys() & set(remove)):
            raise ParameterError(
                "A column is both added and removed.",
                where="add, remove",
                found=", ".join(both),
                expected="each column in one of them",
            )
        for column, kind in add.items():
            known = (self.schema or {}).get(column, kind)
            if known != kind:  # its values would be of the other type
                raise ParameterError(
                    "The table already has this column, with another type.",
                    where=f"table {self.name!r}, column {column!r}",
                    found=kind,
                    expected=known,
                    remedy="remove it first, which discards its values, and then add it",
                )
        schema = None if self.schema is None else {**self.schema, **add}
        for column in remove:
            if schema is not None and schema.pop(column, None) is None:
                raise self._no_such_column_error(column)
        removed = {**self.removed, **dict.fromkeys(remove)}
        removed |= {column: lsn for column in add if column in removed and removed[column] is None}
        acl = _check_level(properties.get("acl") or self.acl)
        return replace(self, acl=acl, schema=schema, removed=removed, lsn=lsn)

    @classmethod
    def create(cls, name: Value, owner: str, properties: Fields, number: int) -> Table:
        """Return a new table; raise ParameterError for unusable properties."""
        if not is_line(name) or len(name) > MAX_NAME:
            raise ParameterError(
                "The name of the table is not usable.",
                where="table",
                found=repr(name)[:120],
                expected=f"a text of one line, 1 to {MAX_NAME} characters",
            )
        split = _check_texts("split", properties.get("split") or ())
        if split != sorted(set(split)):
            raise ParameterError(
                "The first keys of partitions must ascend.",
                where="split",
                found=repr(split),
                expected="texts such as ['g', 'p'], each greater than the one before",
            )
        acl = _check_level(properties.get("acl") or "app")
        apps, schema = properties.get("apps"), properties.get("schema")
        writer_predicates = properties.get("writer_predicates", True)
        if not isinstance(writer_predicates, bool):
            raise _unusable_error("writer_predicates", repr(writer_predicates), "True or False")
        return cls(
            str.__str__(name), owner, acl, None if apps is None else _check_texts("apps", apps), split,
            None if schema is None else _check_schema("schema", schema), {}, number, number,
            UNSET if writer_predicates else False, _rule_of(properties.get("write_rule")),
        )  # fmt: skip


def _rule_of(sent: Value) -> SentPredicate | UnsetType:
    """Return a rule of who may write, or raise ParameterError; the back end checks what it says."""
    if sent is None:
        return UNSET
    try:
        return convert(sent, SentPredicate)
    except ValidationError:
        raise _unusable_error("write_rule", repr(sent), "a text, or the result of rule()") from None


def claims_text(claims: Claims | None) -> str:
    """Return the identity that claims prove, in words, for an error."""
    return "no token" if claims is None else f"app {claims.app!r}, user {claims.user!r}"


def _check_level(acl: Value) -> Level:
    """Return the level of an ACL, or raise ParameterError for any other value."""
    one_of("acl", acl, LEVELS)
    return next(level for level in LEVELS if level == acl)


def _check_texts(where: str, given: Value) -> list[str]:
    """Return a list of texts of one line, or raise ParameterError."""
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        texts = [str.__str__(text) for text in given if is_line(text)]
        if len(texts) == len(given):
            return texts
    raise _unusable_error(where, repr(given), "a list of texts of one line")


def _check_schema(where: str, given: Value) -> dict[str, str]:
    """Return the types of columns, or raise ParameterError for an unusable name or type."""
    if not isinstance(given, Mapping):
        raise _unusable_error(where, repr(given), "a mapping of columns to types")
    schema: dict[str, str] = {}
    for column, kind in given.items():
        if not is_line(column) or column == "key" or not isinstance(kind, str) or kind not in TYPES:
            expected = f"a name other than 'key', and one of {', '.join(TYPES)}"
            raise _unusable_error(where, f"{column!r}: {kind!r}", expected)
        schema[str.__str__(column)] = str.__str__(kind)
    return schema


def _unusable_error(name: str, value: str, expected: str) -> ParameterError:
    """Build the error for an unusable property of a table."""
    return ParameterError(
        f"The parameter {name} is not usable.", where=name, found=value[:120], expected=expected
    )


def no_such_table_error(
    name: Value, tables: Mapping[str, Table] | None = None, claims: Claims | None = None
) -> TableProblem:
    """Build the error for an unknown table; it names only tables that admit the client."""
    known = [table.name for table in (tables or {}).values() if table.admits(claims)]
    return TableProblem(
        "There is no such table.",
        where="table",
        found=repr(name)[:120],
        expected=", ".join(sorted(known)[:10]) or "a table that an app has created",
        remedy=did_you_mean(name, known, "create it first: client.create(name)"),
    )


def check_name(name: Value) -> str:
    """Return the name of a table; raise TableProblem if the cloud would accept no message with it."""
    if not is_line(name) or len(name) > MAX_NAME:
        raise no_such_table_error(name)
    return str.__str__(name)
