"""A table's partitions as the store keeps them: columns by id, ranges sorted and half open.

A tablet is one range and one bucket of each hash level; a table without levels is one tablet. Values are JSON as in
`literal.to_json`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from hashlib import blake2b
from itertools import pairwise, product, takewhile
from math import prod
from typing import Annotated, Any

from pydantic import AfterValidator

from ..cells.exact import EXACT, power_of_ten
from ..cells.literal import from_json, to_json
from ..cells.moment import microseconds_of
from ..errors import InvalidArgumentError
from ..limits.limits import Limits
from ..message import Message
from .column import ColumnSchema
from .partition import HashLevel, Level, RangeBound, RangeEnds, RangeLevel
from .table import TableSchema

_SHOWN_CHARACTERS = 100


class _Bytes(dict[str, str]):
    """The JSON of a binary value, made hashable."""

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return hash(tuple(sorted(self.items())))


def _hashable(cell: Any) -> Any:
    if isinstance(cell, dict) and all(isinstance(text, str) for text in cell.values()):
        return _Bytes(cell)
    if isinstance(cell, dict | list):
        raise ValueError(f"the value {str(cell)[:_SHOWN_CHARACTERS]} of a bound is neither a number nor a text")
    return cell


Cell = Annotated[Any, AfterValidator(_hashable)]
"""A value of a bound, as JSON."""


class HashSchema(Message, frozen=True, extra="forbid"):
    """One hash level of a table's partitions: the columns by id, in the order in which they are hashed."""

    columns: tuple[int, ...]
    buckets: int
    seed: int = 0


class RangePartition(Message, frozen=True, extra="forbid"):
    """One range of a table's partitions: the rows whose range columns are at least ``lower`` and below ``upper``:
    values for the leading range columns; empty for no bound."""

    lower: tuple[Cell, ...] = ()
    upper: tuple[Cell, ...] = ()
    hash: tuple[HashSchema, ...] | None = None
    """This range's own hash levels, instead of the table's."""

    def __str__(self) -> str:
        return f"[{_shown(self.lower)}, {_shown(self.upper)})"


class TabletPartition(Message, frozen=True, extra="forbid"):
    """The partition of a tablet: the rows of one range, and of one bucket of each of its hash levels."""

    lower: tuple[Cell, ...] = ()
    upper: tuple[Cell, ...] = ()
    buckets: tuple[int, ...] = ()


def sum_of(partitions: Iterable[TabletPartition]) -> str:
    """Return 16 hexadecimal digits that identify a set of partitions: the digits of disjoint sets add up to those of
    their union, modulo 2^64."""
    digests = (blake2b(partition.model_dump_json().encode(), digest_size=8).digest() for partition in partitions)
    return f"{sum(int.from_bytes(digest) for digest in digests) % (1 << 64):016x}"


class RangeSplit(Message, frozen=True, extra="forbid"):
    """A range of a table's partitions split in two: below ``at``, and from it on."""

    whole: RangePartition
    at: tuple[Cell, ...]

    @property
    def halves(self) -> tuple[RangePartition, RangePartition]:
        """The two ranges."""
        return self.whole.model_copy(update={"upper": self.at}), self.whole.model_copy(update={"lower": self.at})


WHOLE = TabletPartition()
"""The only tablet of an unpartitioned table."""


class PartitionSchema(Message, frozen=True, extra="forbid"):
    """How a table is divided into tablets."""

    hash: tuple[HashSchema, ...] = ()
    range_columns: tuple[int, ...] = ()
    ranges: tuple[RangePartition, ...] = (RangePartition(),)
    """Ascending, possibly with gaps."""

    @classmethod
    def create(cls, levels: Sequence[Level], schema: TableSchema, limits: Limits) -> PartitionSchema:
        """Resolve the levels of a new table.

        Raises:
            InvalidArgumentError: a level names no key column, ranges overlap, or there are too many tablets.
        """
        hashes = [level for level in levels if isinstance(level, HashLevel)]
        ranges = [level for level in levels if isinstance(level, RangeLevel)]
        if len(ranges) > 1:
            raise InvalidArgumentError("partition_by has two range levels; at most one is allowed")
        made = cls(hash=_hashes(hashes, schema))
        if ranges:
            made = _with_ranges(made, ranges[0], schema)
        return made.checked(schema, limits)

    def checked(self, schema: TableSchema, limits: Limits) -> PartitionSchema:
        """Return a copy with sorted ranges. Raises InvalidArgumentError if they overlap or are too many."""
        columns = self.range_keys(schema)
        ranges = sorted(self.ranges, key=lambda each: _values(each.lower, columns))
        for before, after in pairwise(ranges):
            if not before.upper or _values(before.upper, columns) > _values(after.lower, columns):
                raise InvalidArgumentError(f"the ranges {before} and {after} overlap")
        made = self.model_copy(update={"ranges": tuple(ranges)})
        if (count := made.tablet_count) > limits.tablets:
            raise InvalidArgumentError(
                f"the table would have {count:,} tablets; at most {limits.tablets:,} are allowed: use fewer buckets "
                "or wider ranges"
            )
        return made

    def range_keys(self, schema: TableSchema) -> list[ColumnSchema]:
        """Return the range columns, in order."""
        return [schema.by_id[column_id] for column_id in self.range_columns]

    def hash_of(self, partition: RangePartition) -> tuple[HashSchema, ...]:
        """Return the hash levels of a range."""
        return self.hash if partition.hash is None else partition.hash

    @property
    def tablet_count(self) -> int:
        """The number of the table's tablets."""
        return sum(prod(level.buckets for level in self.hash_of(each)) for each in self.ranges)

    def tablets(self) -> Iterator[TabletPartition]:
        """Yield the partition of each tablet: by range, then by bucket, the last hash level fastest."""
        for each in self.ranges:
            yield from self.tablets_of(each)

    def tablets_of(self, partition: RangePartition) -> Iterator[TabletPartition]:
        """Yield the partition of each tablet of a range."""
        for buckets in product(*(range(level.buckets) for level in self.hash_of(partition))):
            yield TabletPartition(lower=partition.lower, upper=partition.upper, buckets=buckets)

    def resolved(
        self, ends: RangeEnds, schema: TableSchema, levels: Sequence[HashLevel] | None = None
    ) -> RangePartition:
        """Return the range with these ends, with its own hash ``levels`` unless they are None.

        Raises:
            InvalidArgumentError: the ends are invalid, or the range is empty.
        """
        columns = self.range_keys(schema)
        lower = _end(ends.lower, columns, not ends.lower_inclusive)
        upper = _end(ends.upper, columns, ends.upper_inclusive)
        if lower is None:
            raise InvalidArgumentError("an exclusive lower bound is the greatest value: no value lies above it")
        made = RangePartition(lower=lower, upper=upper or (), hash=None if levels is None else _hashes(levels, schema))
        if made.upper and _values(made.lower, columns) >= _values(made.upper, columns):
            raise InvalidArgumentError(f"the range {made} is empty: its lower bound must be below its upper bound")
        return made

    def with_range(self, bound: RangeBound, schema: TableSchema, limits: Limits) -> PartitionSchema:
        """Return a copy with one more range.

        Raises:
            InvalidArgumentError: there is no range level, the range is invalid or overlaps another, or there are too
                many tablets.
        """
        self._check_ranged()
        ranges = (*self.ranges, self.resolved(bound, schema, bound.hash))
        return self.model_copy(update={"ranges": ranges}).checked(schema, limits)

    def without_range(self, ends: RangeEnds, schema: TableSchema) -> tuple[PartitionSchema, RangePartition]:
        """Return a copy without the range with exactly these ends, and that range.

        Raises:
            InvalidArgumentError: there is no range level, or no such range.
        """
        self._check_ranged()
        wanted = self.resolved(ends, schema)
        found = [each for each in self.ranges if (each.lower, each.upper) == (wanted.lower, wanted.upper)]
        if not found:
            known = ", ".join(map(str, self.ranges[:20])) or "none"
            raise InvalidArgumentError(f"there is no range {wanted}; the ranges are: {known}")
        ranges = tuple(each for each in self.ranges if each is not found[0])
        return self.model_copy(update={"ranges": ranges}), found[0]

    def split_at(self, at: Sequence[Any], schema: TableSchema, limits: Limits) -> tuple[PartitionSchema, RangeSplit]:
        """Return a copy with the range that contains ``at`` split there, and the split. A table without a range level
        is one range of its leading key columns.

        Raises:
            InvalidArgumentError: no range contains it, it is the end of one, or there are too many tablets.
        """
        key = [column.id for column in schema.key]
        columns = self.range_columns or tuple(key[: max(len(at), 1)])
        made = self.model_copy(update={"range_columns": columns})
        keys = made.range_keys(schema)
        cells = _cells(at, keys)
        halves = _split(list(self.ranges), cells, keys)
        whole = next(each for each, now in zip(self.ranges, halves, strict=False) if each is not now)
        made = made.model_copy(update={"ranges": tuple(halves)}).checked(schema, limits)
        return made, RangeSplit(whole=whole, at=cells)

    def _check_ranged(self) -> None:
        if not self.range_columns:
            raise InvalidArgumentError("the table is not partitioned by range")

    def common_hash(self, schema: TableSchema) -> list[HashLevel]:
        """Return the hash levels that all ranges begin with: the first buckets of every tablet are theirs."""
        levels = [self.hash_of(each) for each in self.ranges] or [self.hash]
        return [
            HashLevel.model_validate(_described(level[0], schema))
            for level in takewhile(lambda same: len(set(same)) == 1, zip(*levels, strict=False))
        ]

    def described(self, schema: TableSchema) -> list[dict[str, Any]]:
        """Return the levels in the form of ``partition_by``, with every range explicit."""
        levels = [_described(level, schema) for level in self.hash]
        if self.range_columns:
            bounds = [
                {
                    "lower": list(each.lower) or None,
                    "upper": list(each.upper) or None,
                    **({} if each.hash is None else {"hash": [_described(level, schema) for level in each.hash]}),
                }
                for each in self.ranges
            ]
            levels.append({"range": [column.name for column in self.range_keys(schema)], "bounds": bounds})
        return levels


UNPARTITIONED = PartitionSchema()
"""An unpartitioned table."""


def _described(level: HashSchema, schema: TableSchema) -> dict[str, Any]:
    names = [schema.by_id[column_id].name for column_id in level.columns]
    return {"hash": names, "buckets": level.buckets, "seed": level.seed}


def _hashes(levels: Sequence[HashLevel], schema: TableSchema) -> tuple[HashSchema, ...]:
    seen: set[int] = set()
    for level in levels:
        ids = _key_ids(level.hash, schema, "hash")
        if again := seen.intersection(ids):
            names = ", ".join(repr(schema.by_id[column_id].name) for column_id in sorted(again))
            raise InvalidArgumentError(f"partition_by: {names} is in two hash levels; a column may be in only one")
        seen |= set(ids)
    return tuple(
        HashSchema(columns=_key_ids(level.hash, schema, "hash"), buckets=level.buckets, seed=level.seed)
        for level in levels
    )


def _key_ids(names: Sequence[str], schema: TableSchema, what: str) -> tuple[int, ...]:
    key = {column.name: column.id for column in schema.key}
    for name in names:
        if name not in key:
            raise InvalidArgumentError(
                f"partition_by: {name!r} is not a key column; a {what} level takes key columns ({', '.join(key)})"
            )
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"partition_by: a {what} level names a column twice")
    return tuple(key[name] for name in names)


def _with_ranges(made: PartitionSchema, level: RangeLevel, schema: TableSchema) -> PartitionSchema:
    made = made.model_copy(update={"range_columns": _key_ids(level.range, schema, "range")})
    ranges = [made.resolved(bound, schema, bound.hash) for bound in level.bounds or [RangeBound()]]
    columns = made.range_keys(schema)
    for split in level.splits:
        ranges = _split(ranges, _cells(split, columns), columns)
    return made.model_copy(update={"ranges": tuple(ranges)})


def _split(ranges: list[RangePartition], at: tuple[Any, ...], columns: Sequence[ColumnSchema]) -> list[RangePartition]:
    point = _values(at, columns)
    for number, each in enumerate(ranges):
        if _values(each.lower, columns) < point and (not each.upper or point < _values(each.upper, columns)):
            below, above = each.model_copy(update={"upper": at}), each.model_copy(update={"lower": at})
            return [*ranges[:number], below, above, *ranges[number + 1 :]]
    raise InvalidArgumentError(f"the split ({_shown(at)}) lies outside all ranges, or on the bound of a range")


def _cells(values: Sequence[Any], columns: Sequence[ColumnSchema]) -> tuple[Any, ...]:
    """Return the values of a bound or split as stored."""
    if not 1 <= len(values) <= len(columns):
        names = ", ".join(column.name for column in columns) or "no range columns"
        raise InvalidArgumentError(
            f"{list(values)} is not a bound: give a value for each of {names}, or for only the first of these columns"
        )
    if any(value is None for value in values):
        raise InvalidArgumentError(f"{list(values)} is not a bound: no key contains NULL")
    return tuple(_hashable(to_json(value)) for value in _python_values(values, columns))


def _python_values(cells: Sequence[Any], columns: Sequence[ColumnSchema]) -> Iterator[Any]:
    """Yield the values of a bound in Python."""
    for cell, column in zip(cells, columns, strict=False):
        yield from_json(cell, column.logical, f"the bound of {column.name!r}:")


def _values(cells: Sequence[Any], columns: Sequence[ColumnSchema]) -> tuple[Any, ...]:
    """Return the values of a bound such that they compare like its keys."""
    values = _python_values(cells, columns)
    return tuple(microseconds_of(value) if isinstance(value, dt.datetime) else value for value in values)


def _end(values: list[Any] | None, columns: Sequence[ColumnSchema], is_past: bool) -> tuple[Any, ...] | None:
    """Return a bound, or with ``is_past`` the first one past it; None if there is none, () for no bound."""
    if not values:
        return ()
    cells = _cells(values, columns)
    if not is_past:
        return cells
    for last in reversed(range(len(cells))):
        # Keys that begin with the cells are below the next value of the last cell; if there is none, of the cell before
        # it.
        if (after := _successor(cells[last], columns[last])) is not None:
            return (*cells[:last], after)
    return None


def _successor(cell: Any, column: ColumnSchema) -> Any:
    """Return the smallest cell above ``cell``; None if there is none."""
    kind = column.logical
    value = from_json(cell, kind)
    try:
        if kind.is_variable:
            following = value + ("\0" if kind.is_text else b"\0")
        elif kind.name == "timestamp[us]":
            following = microseconds_of(value) + 1
        elif isinstance(value, dt.date):
            following = value + dt.timedelta(days=1)
        else:
            following = EXACT.add(value, power_of_ten(-kind.scale)) if isinstance(value, Decimal) else value + 1
        return _hashable(to_json(from_json(to_json(following), kind)))
    except (OverflowError, InvalidArgumentError):
        return None


def _shown(cells: Sequence[Any]) -> str:
    return ", ".join(map(str, cells)) or "unbounded"
