"""PARTITION BY of CREATE TABLE, and the ranges of ALTER TABLE."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from ....schemas.cells.literal import to_json
from ....schemas.errors import InvalidArgumentError
from ....schemas.protocol.command import built
from ....schemas.table.partition import HashLevel, RangeBound, RangeLevel
from ..text.dialect import HashBuckets, PartitionLevels, RangePart, RangeParts, SplitAt
from ..text.names import name_of
from .literals import constant

_UNBOUNDED = ("MINVALUE", "MAXVALUE")


def levels_of(node: PartitionLevels) -> list[HashLevel | RangeLevel]:
    """Return the levels of an SQL statement's PARTITION BY. Raises InvalidArgumentError: a number or value is wrong."""
    return [_range_level(each) if isinstance(each, RangeParts) else _hash_level(each) for each in node.expressions]


def bound_of(part: RangePart) -> RangeBound:
    """Return one range of PARTITION BY. Raises InvalidArgumentError: a value is no literal."""
    levels = part.args.get("levels")
    return built(
        RangeBound,
        "the range",
        lower=_end(part.args["lower"], "MINVALUE"),
        upper=_end(part.args["upper"], "MAXVALUE"),
        lower_inclusive=not part.args.get("exclusive"),
        upper_inclusive=bool(part.args.get("inclusive")),
        hash=None if levels is None else [_hash_level(each) for each in levels],
    )


def values_of(split: SplitAt) -> list[Any]:
    """Return the values of SPLIT AT. Raises InvalidArgumentError: one is no literal."""
    return [_value(each) for each in split.expressions]


def _hash_level(node: HashBuckets) -> HashLevel:
    numbers = {"buckets": _value(node.args["buckets"])}
    if node.args.get("seed") is not None:
        numbers["seed"] = _value(node.args["seed"])
    return built(HashLevel, "the hash level", hash=[name_of(each) for each in node.expressions], **numbers)


def _range_level(node: RangeParts) -> RangeLevel:
    parts = node.args.get("parts") or []
    return built(
        RangeLevel,
        "the range level",
        range=[name_of(each) for each in node.expressions],
        bounds=[bound_of(each) for each in parts if isinstance(each, RangePart)],
        splits=[values_of(each) for each in parts if isinstance(each, SplitAt)],
    )


def _end(nodes: list[exp.Expr], unbounded: str) -> list[Any] | None:
    """Return the values of one end; None: no bound. Values that are left out at the end are the least."""
    words = [each.name.upper() if isinstance(each, exp.Column | exp.Var) else "" for each in nodes]
    answer = [word for word in words if word in _UNBOUNDED]
    if not answer:
        return [_value(each) for each in nodes]
    if len(answer) == len(nodes) and set(answer) == {unbounded}:
        return None
    given = [_value(each) for each, word in zip(nodes, words, strict=True) if not word]
    if unbounded == "MINVALUE" and words == [""] * len(given) + ["MINVALUE"] * (len(nodes) - len(given)):
        return given
    raise InvalidArgumentError(
        "in FROM, MINVALUE must come after all other values; in TO, MAXVALUE must replace all values"
    )


def _value(node: exp.Expr) -> Any:
    return to_json(constant(node, "a value of PARTITION BY"))
