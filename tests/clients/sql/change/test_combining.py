"""ON CONFLICT DO UPDATE by the store's merge, beside the same statements by a read and a write on condition."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from nyala.clients.sql.change import insert
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, StoreError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from tests.dose import dose

from .random_conflicts import TABLE, statement
from .small_reader import SmallSql

COUNT = dose(120, 5_000)
SEEDS = dose([1], [1, 2, 3, 4, 5, 6])


class BothWays:
    """The same table twice: one side merges where it can, the other side never does."""

    def __init__(self, merging: SmallSql, reading: SmallSql) -> None:
        self.merging = merging
        self.reading = reading
        self.merges = 0
        """How many statements one side has run as a merge, and the store has not refused."""

    def run(self, text: str) -> tuple[int | str, int | str]:
        """Run a statement on both sides; return its counts, or the codes of its errors."""
        merged: list[int] = []

        def rules_of(*arguments: Any) -> Any:
            answer = combining(*arguments)
            merged.append(answer is not None)
            return answer

        combining = insert.rules_of
        with patch.object(insert, "rules_of", rules_of):
            one = _outcome(self.merging, text)
        with patch.object(insert, "rules_of", lambda *_: None):
            other = _outcome(self.reading, text)
        self.merges += any(merged) and isinstance(one, int)
        return one, other

    def rows(self) -> tuple[list[str], list[str]]:
        """Return the rows of both sides, with NaN equal to itself."""
        one, other = (sorted(map(str, each.rows("t"))) for each in (self.merging, self.reading))
        return one, other


def _outcome(sql: SmallSql, text: str) -> int | str:
    try:
        return sql.run(text).count
    except StoreError as error:
        assert "\n" not in error.message and "the merge of" not in error.message, error.message
        return error.code


COUNTERS = """
CREATE TABLE c (id bigint PRIMARY KEY, n bigint, best numeric(6,2), s text, first timestamp DEFAULT now(),
    made bigint WITH (immutable = true));
INSERT INTO c (id, n, best, s) VALUES (1, 10, 1.5, 'old')
"""
RAISE = "ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n"
ONE = "INSERT INTO c (id, n, best, s) VALUES (1, 2, 3, 'new') ON CONFLICT (id) DO UPDATE SET"
MERGED = [
    (f"{ONE} n = c.n + excluded.n, best = greatest(c.best, excluded.best), s = excluded.s", 12, "3.00", "new"),
    (f"{ONE} n = n + 1", 11, "1.50", "old"),
    (f"{ONE} N = C.N * 2, best = least(c.best, Excluded.best + 1)", 20, "1.50", "old"),
    (f"{ONE} n = excluded.n, s = c.s || excluded.s", 2, "1.50", "oldnew"),
    (f"{ONE} n = CASE WHEN excluded.best > c.best THEN 7 ELSE c.n END, best = 9", 7, "9.00", "old"),
    (f"{ONE} best = excluded.best", 10, "3.00", "old"),
    (f"{ONE} n = excluded.id, first = now()", 1, "1.50", "old"),
    ("INSERT INTO c AS old (id) VALUES (1) ON CONFLICT DO UPDATE SET n = old.n - 1, s = NULL", 9, "1.50", None),
    ("INSERT INTO c (id) VALUES (1) ON CONFLICT DO UPDATE SET n = coalesce(c.n * 3, excluded.n)", 30, "1.50", "old"),
    (f"INSERT INTO c (id, n) SELECT 1, 5 {RAISE}", 15, "1.50", "old"),
]
READ = [
    (f"{ONE} n = c.n + excluded.n WHERE c.n > 3", 12, "1.50", "old"),
    (f"{ONE} s = upper(excluded.s)", 10, "1.50", "NEW"),
    (f"{ONE} n = (SELECT max(n) FROM c) + 1", 11, "1.50", "old"),
    (f"{ONE} n = c.n + (1 + 1)", 12, "1.50", "old"),
    (f"{ONE} n = c.n * 2 + excluded.n", 22, "1.50", "old"),
    (f"{ONE} s = DEFAULT", 10, "1.50", None),
    (f"{ONE} n = c.n", 10, "1.50", "old"),
    (f"{ONE} n = excluded.best * 2", 6, "1.50", "old"),
    (
        "INSERT INTO c (id, n) SELECT id, n FROM c ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n",
        20,
        "1.50",
        "old",
    ),
    ("INSERT INTO c (id, made) VALUES (1, 5) ON CONFLICT (id) DO UPDATE SET n = c.n + 1", 11, "1.50", "old"),
]


@pytest.mark.parametrize(("text", "n", "best", "s"), [*MERGED, *READ])
def test_what_a_statement_does_to_a_row_that_is_there(
    sql: SmallSql, text: str, n: int, best: str, s: str | None
) -> None:
    sql.run(COUNTERS)
    (before,) = sql.rows("c")
    writes: list[WriteCommand] = []
    with patch.object(sql.store, "write", lambda command, *rest: (writes.append(command), write(command, *rest))[1]):
        write = type(sql.store).write.__get__(sql.store)
        assert sql.run(text).count == 1
    (row,) = sql.rows("c")
    assert (row["n"], str(row["best"]), row["s"], row["made"]) == (n, best, s, None)
    assert (row["first"] == before["first"]) == ("now()" not in text)
    is_merged = [each.op for each in writes] == [Operation.MERGE]
    assert is_merged == any(text == each for each, *_ in MERGED)


@pytest.mark.parametrize(
    ("value", "wide", "price"),
    [
        ("w.cents + (1.25 + wide)", "123456789012346.25000", 123456789012346.25),
        ("wide - n * .1", "123456789012345.20000", 123456789012345.2),
        ("-wide * -(1.00001)", "123458023580235.62346", 123458023580235.623455),
        ("CASE WHEN n > 2.5 THEN wide + 1e-5 END", "123456789012345.50001", 123456789012345.50001),
        ("n * 0.1", "0.30000", 0.3),
        ("(0.5 + n) - half", "3.00000", 3.0),
    ],
)
def test_a_number_with_a_point_is_a_decimal_whichever_way_a_row_changes(
    sql: SmallSql, value: str, wide: str, price: float
) -> None:
    sql.run(
        "CREATE TABLE w (id bigint PRIMARY KEY, cents numeric(6,2), wide numeric(20,5), n int, half float8,"
        "price float8)"
    )
    for text in (
        f"INSERT INTO w (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET wide = {value}",
        f"INSERT INTO w (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET wide = {value} WHERE true",
        f"UPDATE w SET wide = {value}",
        f"UPDATE w SET wide = {value} WHERE (SELECT count(*) FROM w) = 1",
    ):
        sql.run("DELETE FROM w; INSERT INTO w VALUES (1, -0.5, 123456789012345.5, 3, 0.5, 0)")
        assert sql.run(text).count == 1
        assert str(sql.rows("w")[0]["wide"]) == wide, text
        if "half" not in value:
            sql.run("DELETE FROM w; INSERT INTO w VALUES (1, -0.5, 123456789012345.5, 3, 0.5, 0)")
            sql.run(text.replace("SET wide", "SET price"))
            assert sql.rows("w")[0]["price"] == price, text


def test_a_new_row_takes_its_values_and_defaults(sql: SmallSql) -> None:
    sql.run(COUNTERS)
    text = f"INSERT INTO c (id, n, s) VALUES (2, 5, 'x'), (1, 6, 'y') {RAISE}"
    assert sql.run(text).count == 2
    old, new = sql.rows("c")
    assert (old["n"], old["s"]) == (16, "old")
    assert (new["n"], new["best"], new["s"], new["made"]) == (5, None, "x", None)
    assert new["first"] > old["first"]


def test_one_value_that_does_not_fit_refuses_all_rows(sql: SmallSql) -> None:
    sql.run(COUNTERS)
    rows = f"(3, 1), (1, {(1 << 63) - 1}), (2, 1)"
    with pytest.raises(InvalidArgumentError, match=r"column 'n': .*overflow.*nothing was changed"):
        sql.run(f"INSERT INTO c (id, n) VALUES {rows} {RAISE}")
    with pytest.raises(InvalidArgumentError, match=r"\(id=1\).*accepts each key only once"):
        sql.run(
            "INSERT INTO c (id, n) VALUES (1, 1), (2, 1), (1, 1) ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n"
        )
    assert [row["n"] for row in sql.rows("c")] == [10]


@pytest.mark.parametrize("where", ["", " WHERE c.n > 0"])
def test_a_text_that_is_too_long_is_refused_where_its_row_is_there_too(sql: SmallSql, where: str) -> None:
    sql.run("CREATE TABLE c (id bigint PRIMARY KEY, n bigint, s varchar(3)); INSERT INTO c VALUES (1, 1, 'abc')")
    with pytest.raises(InvalidArgumentError, match="column 's' has more than 3 characters"):
        sql.run(f"INSERT INTO c VALUES (1, 1, 'abcd') {RAISE}{where}")
    assert sql.rows("c") == [{"id": 1, "n": 1, "s": "abc"}]


@pytest.mark.parametrize("option", ["order_by = 'n'", "ttl = '1h'"])
def test_tables_whose_rows_are_ordered_or_expire_are_read(sql: SmallSql, option: str) -> None:
    sql.run(f"CREATE TABLE c (id bigint PRIMARY KEY, n bigint) WITH ({option}); INSERT INTO c VALUES (1, 2)")
    with patch.object(insert, "rules_of", wraps=insert.rules_of) as rules:
        assert sql.run(f"INSERT INTO c VALUES (1, 3) {RAISE}").count == 1
    assert rules.call_count == 1 and sql.reads == 1
    assert sql.rows("c")[0]["n"] == 5


@pytest.fixture
def both() -> Iterator[BothWays]:
    with ExitStack() as stack:
        stores = [
            stack.enter_context(Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))) for _ in range(2)
        ]
        yield BothWays(*map(SmallSql, stores))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_statements_mean_the_same_both_ways(both: BothWays, seed: int) -> None:
    random = Random(seed)
    both.run(TABLE)
    for _ in range(COUNT):
        text = statement(random)
        one, other = both.run(text)
        assert one == other, text
        mine, others = both.rows()
        assert mine == others, (text, [row for row in mine if row not in others])
    assert both.merges > COUNT // 5
