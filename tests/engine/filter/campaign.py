"""Random filters, expressions and aggregates on the mixed table, each against DuckDB and the algebra of predicates.

    python tests/engine/filter/campaign.py --count 5000 --seed 0

A count is one filter of plain comparisons, which is also read as an expression, one filter of any expressions, and a
fourth of an aggregate and of an update of several columns. A failure ends the run with the filter, shrunk.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import duckdb
import pyarrow as pa
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.rows.predicate import Comparison, Junction, Not, Predicate
from tests.engine.filter import model
from tests.engine.filter.duck import duckdb_literal, is_common_ground
from tests.engine.filter.expressions import VALUES, Term, conditions, long_chains
from tests.engine.filter.mixed import NAN_IDS, MixedTable
from tests.engine.filter.model import KINDS, to_sql

MOMENTS = 3
COMMON = model.predicates(model.leaves().filter(is_common_ground))
FLOATS = ("float_c", "double_c")
TEXTS = ("string_c", "varchar_80_c", "binary_c", "bool_c", "date_c", "timestamp_us_c")
TIMESTAMP = "timestamp_us_c"
NOT_COMPUTED = "cannot be computed"
COMPUTING = (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException)
"""What DuckDB raises for values, not for text."""
GROUPS = [name for name in KINDS if name not in FLOATS]


def check_filter(mixed: MixedTable, predicate: Predicate, other: Predicate, moment: int) -> None:
    """DuckDB agrees on P and on NOT P; both and what is neither part the table; P AND Q is what both select."""
    negated = Not(op="not", arg=predicate)
    found, refused = mixed.ids(predicate, moment), mixed.ids(negated, moment)
    assert found == mixed.expected_ids(predicate, moment)
    assert refused == mixed.expected_ids(negated, moment)
    assert not found & refused
    both = Junction(op="and", args=[predicate, other])
    assert mixed.ids(both, moment) == found & mixed.ids(other, moment)
    either = Junction(op="or", args=[predicate, negated])
    assert mixed.ids(either, moment) == found | refused, "what is unknown is in neither"
    where = predicate.model_dump(mode="json")
    assert mixed.table.scan(where=where, as_of=mixed.states[moment][0]).count() == len(found)
    assert mixed.ids(to_sql(predicate, wrapper="coalesce({})"), moment) == found, "an expression means the same"


def check_expression(mixed: MixedTable, condition: Term, moment: int) -> None:
    """DuckDB agrees on P and on NOT P, or cannot compute them either; every read selects the same rows."""
    shown = f"id < {NAN_IDS} AND"
    selected = [_ids(mixed, f"{shown} {word} {condition.ours}", moment) for word in ("", "NOT")]
    expected = [_duck_ids(mixed, f"{word} {condition.duck}", moment) for word in ("", "NOT")]
    if None in selected or None in expected:
        assert not condition.is_strict or selected == expected == [None, None], "one of both cannot compute it"
        return
    assert selected == expected
    text = f"id % 2 = 0 AND {condition.ours} AND {shown} id >= 0"
    assert mixed.ids(text, moment) == {key for key in selected[0] or () if key % 2 == 0}
    scan = mixed.table.scan(where=f"{shown} ({condition.ours} OR FALSE)", as_of=mixed.states[moment][0])
    assert scan.count() == len(selected[0] or ())


def check_values(mixed: MixedTable, values: dict[str, Term], third: int) -> None:
    """An update sets the values that DuckDB computes, of each type, or nothing."""
    chosen = f"id < {NAN_IDS} AND id % 3 = {third}"
    try:
        rows = mixed.set_values({kind: each.ours for kind, each in values.items()}, chosen)
    except InvalidArgumentError as error:
        assert NOT_COMPUTED in error.message, error.message
        rows = None
    try:
        expected = mixed.duck_values({kind: each.duck for kind, each in values.items()}, chosen)
    except duckdb.Error:
        expected = None
    if rows is None or expected is None:
        assert rows == expected or not all(each.is_strict for each in values.values()), "one of both cannot compute it"
        return
    assert rows == expected


def _ids(mixed: MixedTable, where: str, moment: int) -> set[int] | None:
    """Return what the store selects; None if it cannot compute it."""
    try:
        return mixed.ids(where, moment)
    except InvalidArgumentError as error:
        assert NOT_COMPUTED in error.message, error.message
        return None


def _duck_ids(mixed: MixedTable, where: str, moment: int) -> set[int] | None:
    try:
        return {row[0] for row in mixed.duck.execute(f"SELECT id FROM state{moment} WHERE {where}").fetchall()}
    except duckdb.Error as error:
        assert isinstance(error, COMPUTING), str(error)
        return None


@st.composite
def aggregates(draw: st.DrawFn) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Measures that DuckDB has too, and what to group by. Sums of floats depend on their order: they are left out."""
    group_by = draw(st.lists(st.sampled_from(GROUPS), max_size=3, unique=True))
    measures = {"rows": ("*", "count")}
    for number in range(draw(st.integers(0, 4))):
        column = draw(st.sampled_from([*KINDS, "id"]))
        functions = ["count", "min", "max"] + ([] if column in (*FLOATS, *TEXTS) else ["sum", "avg"])
        measures[f"m{number}"] = (column, draw(st.sampled_from(functions)))
    return measures, group_by


def check_aggregate(
    mixed: MixedTable,
    predicate: Predicate | None,
    asked: tuple[dict[str, tuple[str, str]], list[str]],
    moment: int,
) -> None:
    """DuckDB has the same groups with the same measures."""
    measures, group_by = asked
    shown = Comparison(op="<", column="id", value=NAN_IDS)
    whole = shown if predicate is None else Junction(op="and", args=[shown, predicate])
    where = whole.model_dump(mode="json")
    scan = mixed.table.scan(where=where, as_of=mixed.states[moment][0])
    found = _comparable(scan.aggregate(measures, group_by))
    text = to_sql(whole, duckdb_literal, " ESCAPE '\\'")
    columns = [*map(_readable, group_by), *(_readable(column, function) for column, function in measures.values())]
    grouped = f" GROUP BY {', '.join(group_by)}" if group_by else ""
    rows = mixed.duck.execute(f"SELECT {', '.join(columns)} FROM state{moment} WHERE {text}{grouped}").fetchall()
    ours = _by_key([tuple(row.values()) for row in found.to_pylist()], len(group_by))
    theirs = _by_key(rows, len(group_by))
    assert ours.keys() == theirs.keys()
    functions = [function for _, function in measures.values()]
    for key, values in theirs.items():
        for function, mine, other in zip(functions, ours[key], values, strict=True):
            assert _same(function, mine, other), f"{function} of group {key}: {mine!r}, DuckDB {other!r}"


def _comparable(rows: pa.Table) -> pa.Table:
    """Return rows with numbers in the place of timestamps, some of which Python lacks."""
    places = [place for place, kind in enumerate(rows.schema.types) if pa.types.is_timestamp(kind)]
    for place in places:
        rows = rows.set_column(place, rows.schema.names[place], rows.column(place).cast(pa.int64()))
    return rows


def _readable(column: str, function: str = "") -> str:
    """Return a column, or a function of it, as DuckDB selects it; timestamps likewise as numbers."""
    found = f"{function}({column})" if function else column
    return f"epoch_us({found})" if column == TIMESTAMP and function != "count" else found


def _by_key(rows: list[tuple[Any, ...]], width: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    found = {row[:width]: row[width:] for row in rows}
    assert len(found) == len(rows), "a group came twice"
    return found


def _same(function: str, mine: Any, other: Any) -> bool:
    if mine is None or other is None or function != "avg":
        return mine == other
    mine, other = float(mine), float(other)
    return abs(mine - other) <= 1e-9 * max(abs(mine), abs(other), 1e-300) or abs(mine - other) < _ROUNDING


_ROUNDING = 1e-5
"""DuckDB averages by way of doubles, where numbers that cancel out leave some of their size."""


def run(mixed: MixedTable, count: int, number: int, tell: Callable[[str], None] = lambda _: None) -> None:
    """Check ``count`` random filters and filters of expressions, and a fourth as many updates and aggregates."""
    moments = st.integers(0, MOMENTS - 1)

    def settled(examples: int) -> Any:
        checks = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
        return settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks)

    @seed(number)
    @settled(count)
    @given(predicate=COMMON, other=COMMON, moment=moments)
    def filters(predicate: Predicate, other: Predicate, moment: int) -> None:
        check_filter(mixed, predicate, other, moment)

    @seed(number)
    @settled(max(count // 4, 1))
    @given(predicate=st.none() | COMMON, asked=aggregates(), moment=moments)
    def grouped(predicate: Predicate | None, asked: Any, moment: int) -> None:
        check_aggregate(mixed, predicate, asked, moment)

    @seed(number)
    @settled(count)
    @given(condition=conditions() | long_chains(), moment=moments)
    def expressions(condition: Term, moment: int) -> None:
        check_expression(mixed, condition, moment)

    @seed(number)
    @settled(max(count // 4, 1))
    @given(values=st.fixed_dictionaries({kind: each() for kind, each in VALUES.items()}), third=st.integers(0, 2))
    def updates(values: dict[str, Term], third: int) -> None:
        check_values(mixed, values, third)

    filters()
    tell(f"{count:,} filters: DuckDB agrees on all")
    expressions()
    tell(f"{count:,} filters of expressions: DuckDB agrees on all")
    updates()
    tell(f"{max(count // 4, 1):,} updates of {len(VALUES)} columns: DuckDB agrees on all")
    grouped()
    tell(f"{max(count // 4, 1):,} aggregates: DuckDB agrees on all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    mixed = MixedTable(options.seed)
    try:
        run(mixed, options.count, options.seed, lambda line: print(line, flush=True))
    finally:
        mixed.close()


if __name__ == "__main__":
    main()
