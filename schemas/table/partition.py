"""The division of a table into tablets, as in ``create_table``: any number of hash levels, at most one range level.

    {"hash": ["carrier"], "buckets": 4}
    {"range": ["time_hour"], "bounds": [{"lower": ["2013-01-01"], "upper": ["2014-01-01"]}], "splits": [["2013-07-01"]]}

``hash`` and ``range`` create them in Python. `partition_schema` has the resolved form, with column ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Discriminator, Field, Tag, ValidationError

from ..cells.literal import to_json
from ..errors import InvalidArgumentError
from ..message import Message, new_list

SEED_MAX = (1 << 31) - 1


class HashLevel(Message, frozen=True, extra="forbid"):
    """A hash level of a table's partitions: rows are spread over ``buckets`` by the hash of some key columns.

    The bucket is what Spark computes as ``pmod(xxhash64(columns), buckets)``; with a ``seed`` other than 0 as
    ``pmod(xxhash64(seed, columns), buckets)``, the seed an INT.
    """

    hash: list[str] = Field(min_length=1)
    buckets: int = Field(ge=2)
    seed: int = Field(default=0, ge=0, le=SEED_MAX)


class RangeEnds(Message, frozen=True, extra="forbid"):
    """The ends of a range of a table's partitions. ``lower`` and ``upper`` have a value for each of the leading range
    columns; missing ones mean the least value, None means no bound."""

    lower: list[Any] | None = None
    upper: list[Any] | None = None
    lower_inclusive: bool = True
    upper_inclusive: bool = False


class RangeBound(RangeEnds, frozen=True):
    """One range of a table's partitions. ``hash`` gives it its own hash levels."""

    hash: list[HashLevel] | None = None


class RangeLevel(Message, frozen=True, extra="forbid"):
    """The range level of a table's partitions: rows are divided by ranges of some key columns: ``bounds``, which may
    leave gaps, each split at the ``splits`` within it.

    Without ``bounds`` there is one range, of all values.
    """

    range: list[str] = Field(min_length=1)
    bounds: list[RangeBound] = Field(default_factory=new_list)
    splits: list[list[Any]] = Field(default_factory=new_list)


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "range" if "range" in value else "hash"
    return "range" if isinstance(value, RangeLevel) else "hash"


Level = Annotated[Annotated[HashLevel, Tag("hash")] | Annotated[RangeLevel, Tag("range")], Discriminator(_kind)]

_Level = TypeVar("_Level", HashLevel, RangeBound, RangeLevel)

Bound = tuple[Any, Any] | Mapping[str, Any] | RangeBound
"""(lower, upper), each None, a value, or a tuple of values; or the members of a ``RangeBound`` by name."""


def hash(*columns: str, buckets: int, seed: int = 0) -> HashLevel:
    """Return a hash level for ``partition_by``: rows are spread over ``buckets`` by the hash of ``columns``.

    Raises:
        InvalidArgumentError: there are fewer than two buckets, no columns, or ``seed`` is not an integer from 0 to
            2**31 - 1.
    """
    return _level(HashLevel, hash=list(columns), buckets=buckets, seed=seed)


def range(*columns: str, bounds: Iterable[Bound] = (), splits: Iterable[Any] = ()) -> RangeLevel:
    """Return a range level for ``partition_by``: rows are divided by ranges of ``columns``.

    ``bounds`` are pairs (lower, upper): lower inclusive, upper exclusive, None for no bound, tuples of values for
    several columns. They may also be dicts with ``lower``, ``upper``, ``lower_inclusive``, ``upper_inclusive`` and
    ``hash``, the range's own hash levels. ``splits`` divide the bounds that contain them. Without bounds there is one
    range, of all values.

    Raises:
        InvalidArgumentError: a bound is not a pair, or a value cannot be stored in a column.
    """
    return _level(
        RangeLevel,
        range=list(columns),
        bounds=[range_bound(bound) for bound in bounds],
        splits=[_values(split) for split in splits],
    )


def range_bound(bound: Bound) -> RangeBound:
    """Return a range of a table's partitions in any form that ``range`` accepts. Raises InvalidArgumentError if it is
    invalid."""
    if isinstance(bound, RangeBound):
        return bound
    if isinstance(bound, Mapping):
        members = {name: _values(value) if name in ("lower", "upper") else value for name, value in bound.items()}
        return _level(RangeBound, **members)
    if not isinstance(bound, Sequence) or isinstance(bound, str) or len(bound) != 2:
        raise InvalidArgumentError(f"a bound must be a pair (lower, upper), each None if unbounded, not {bound!r}")
    return RangeBound(lower=_values(bound[0]), upper=_values(bound[1]))


def _values(value: Any) -> list[Any] | None:
    if value is None:
        return None
    return [to_json(cell) for cell in value] if isinstance(value, list | tuple) else [to_json(value)]


def _level(model: type[_Level], **members: Any) -> _Level:
    try:
        return model.model_validate(members)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or model.__name__
        raise InvalidArgumentError(f"partition_by: {where}: {first['msg']}") from None
