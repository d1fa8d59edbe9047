"""Tables of a query that are read only where others have keys for them, or stream from where their read came to."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from datafusion import SessionContext

import nyala
from nyala.clients.api.database import Database
from nyala.clients.sql.engine import SqlEngine
from nyala.clients.sql.fences import SqlLimits
from nyala.clients.sql.leaves import reader, reductions
from nyala.clients.sql.leaves.restrictions import Edge, places_of
from nyala.clients.sql.leaves.table_read import TableRead
from nyala.clients.sql.source.begun import BegunRead
from nyala.schemas.errors import InvalidArgumentError, UnavailableError
from tests.clients.sql.random_queries import Queries, fill, ordered
from tests.dose import dose
from tests.doubles.waiting import until

LEAF_BYTES = 1 << 17
LARGE = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("k", pa.int32()), ("s", pa.string()), ("v", pa.int64())]
)
SMALL = pa.schema([pa.field("k", pa.int32(), nullable=False), ("s", pa.string()), ("other", pa.int32())])


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table with more than a few rows counts as large, and all keys as few."""
    monkeypatch.setattr(reader, "_LARGE_SHARE", 0.0)
    monkeypatch.setattr(reader, "_FIRST_SHARE", 1 << 8)
    monkeypatch.setattr(reductions, "_IN_THE_END", (10**6, 1.0))


@pytest.fixture
def restricted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tables that were read anew."""
    names: list[str] = []
    begin = TableRead.begin_again
    monkeypatch.setattr(
        TableRead, "begin_again", lambda self, *given: (names.append(self.table.description.name), begin(self, *given))
    )
    return names


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture
def tables(db: Database, oracle: duckdb.DuckDBPyConnection) -> SqlEngine:
    """``large`` with keys, of which ``few`` and ``other`` have some, beside NULL."""
    draw = random.Random(3)
    large = pa.Table.from_pylist(
        [
            {"id": number, "k": draw.choice([None, *range(200)]), "s": draw.choice([None, "a", "b", "c"]), "v": number}
            for number in range(4_000)
        ],
        LARGE,
    )
    few = pa.table({"k": [1, 2, 3, 250], "s": ["a", None, "b", "z"], "other": [10, None, 11, 12]}, SMALL)
    other = pa.table({"k": [10, 11, 12], "s": ["x", "x", "y"], "other": [1, 2, None]}, SMALL)
    for name, given, parts in (("large", large, 4), ("few", few, 0), ("other", other, 0)):
        key = "id" if name == "large" else "k"
        table = db.create_table(name, given.schema, [key], [nyala.hash(key, buckets=parts)] if parts else ())
        table.insert(given)
        oracle.register("given", given)
        oracle.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
    db.table("large").maintain("flush")
    return SqlEngine(db._store, SqlLimits(leaf_bytes=LEAF_BYTES, partitions=2))


FEW = "(SELECT * FROM few WHERE k < 3)"
RESTRICTED = [
    f"SELECT l.id FROM large l JOIN {FEW} f ON l.k = f.k",
    f"SELECT l.id FROM {FEW} f JOIN large l ON l.k = f.k AND l.s = f.s",
    f"SELECT f.k, l.id FROM {FEW} f LEFT JOIN large l ON l.k = f.k",
    f"SELECT f.k, l.id FROM large l RIGHT JOIN {FEW} f ON l.k = f.k",
    "SELECT l.id FROM large l WHERE l.k IN (SELECT k FROM few WHERE s = 'a')",
    "SELECT l.id FROM large l WHERE EXISTS (SELECT 1 FROM few f WHERE f.k = l.k AND f.s = 'a')",
    "SELECT l.id FROM large l JOIN few f ON l.k = f.k WHERE f.s LIKE 'a%'",
    "SELECT l.id FROM large l JOIN few f ON l.k = f.k JOIN other o ON o.k = f.other WHERE o.s = 'x'",
    f"SELECT f.k, t.n FROM {FEW} f JOIN (SELECT k, count(*) AS n FROM large GROUP BY k) t ON t.k = f.k",
    f"SELECT f.k, t.n FROM {FEW} f LEFT JOIN (SELECT k, count(*) AS n FROM large GROUP BY k) t ON t.k = f.k",
    f"SELECT a.id, b.id FROM large a JOIN large b ON a.id = b.id + 1 JOIN {FEW} f ON a.k = f.k AND b.k = f.k",
    f"SELECT l.id FROM large l JOIN {FEW} f ON l.k = f.k AND l.v > 100 WHERE l.v < 3000 ORDER BY l.id LIMIT 7",
    "SELECT l.id FROM large l WHERE l.k IN (SELECT k FROM few GROUP BY k HAVING count(*) = 1)",
]
"""Queries that read ``large`` only where it has keys."""
WHOLE = [
    f"SELECT l.id, f.k FROM large l LEFT JOIN {FEW} f ON l.k = f.k",
    f"SELECT l.id, f.k FROM large l FULL JOIN {FEW} f ON l.k = f.k",
    "SELECT l.id FROM large l WHERE l.k NOT IN (SELECT k FROM few WHERE s = 'a')",
    "SELECT f.k FROM few f WHERE f.k NOT IN (SELECT k FROM large) AND f.s = 'a'",
    "SELECT f.k FROM few f WHERE f.k NOT IN (SELECT k FROM large WHERE k IS NOT NULL) AND f.k > 2",
    "SELECT l.id FROM large l WHERE NOT EXISTS (SELECT 1 FROM few f WHERE f.k = l.k AND f.s = 'a')",
    "SELECT l.id FROM large l WHERE l.k IN (SELECT k FROM few WHERE s = 'a') OR l.v = 5",
    f"SELECT l.id FROM large l JOIN {FEW} f ON l.k IS NOT DISTINCT FROM f.other",
    f"SELECT other FROM {FEW} INTERSECT SELECT k FROM large",
    f"SELECT other FROM {FEW} EXCEPT SELECT k FROM large",
    f"SELECT t.id FROM (SELECT id, k, row_number() OVER (ORDER BY id) AS n FROM large) t JOIN {FEW} f ON t.n = f.k",
    f"SELECT t.id, t.n FROM (SELECT id, k, count(*) OVER (PARTITION BY s) AS n FROM large) t JOIN {FEW} f ON t.k = f.k",
    f"SELECT t.id FROM (SELECT id, k FROM large ORDER BY id LIMIT 50) t JOIN {FEW} f ON t.k = f.k",
    f"SELECT l.id FROM large l JOIN {FEW} f ON l.k + 1 = f.k",
    f"SELECT l.id FROM large l JOIN {FEW} f ON l.v = f.k",
    f"WITH t AS (SELECT k, id FROM large) SELECT t.id FROM t JOIN {FEW} f ON t.k = f.k UNION ALL SELECT max(id) FROM t",
    f"SELECT l.id FROM (SELECT * FROM large UNION ALL SELECT * FROM large) l JOIN {FEW} f ON l.k = f.k",
    f"SELECT l.id FROM large l JOIN {FEW} f ON l.k = f.k WHERE l.v > (SELECT avg(v) FROM large)",
    f"SELECT k, s, count(*) FROM (SELECT l.k, l.s FROM large l JOIN {FEW} f ON l.k = f.k) GROUP BY ROLLUP (k, s)",
    "SELECT f.k FROM few f WHERE f.s ILIKE 'A'",
]
"""Queries that need other rows of ``large``, or might."""


@pytest.mark.parametrize("text", RESTRICTED)
def test_a_large_table_is_read_where_it_has_keys(
    eager: None, tables: SqlEngine, restricted: list[str], oracle: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert ordered(tables.query(text).to_arrow()) == ordered(oracle.sql(text).to_arrow_table())
    assert "large" in restricted
    lines = tables.query(f"EXPLAIN ANALYZE {text}").to_arrow()["plan"].to_pylist()
    assert any(line.startswith("  restricted by the keys of: ") for line in lines)


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_both_zeros_and_every_nan_are_one_key(
    eager: None,
    db: Database,
    tables: SqlEngine,
    restricted: list[str],
    oracle: duckdb.DuckDBPyConnection,
    kind: pa.DataType,
) -> None:
    """Floats are no filter of another table, but they decide which rows of a table have keys for a third one."""
    nan = float("nan")
    for name, floats in (("first", [0.0, nan, 1.0, -0.0]), ("second", [-0.0, -nan, 2.0, 7.0])):
        columns = {"id": [1, 2, 3, 4], "k": pa.array([5, 6, 7, 8], pa.int32())}
        given = pa.table({**columns, "x": pa.array(floats, kind)})
        db.create_table(name, given.schema, "id").insert(given)
        oracle.register("given", pa.table({**columns, "x": floats}))
        oracle.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM given")
    text = "SELECT l.id, a.id AS a FROM large l JOIN second b ON l.k = b.k JOIN first a ON a.x = b.x WHERE a.id < 4"
    assert ordered(tables.query(text).to_arrow()) == ordered(oracle.sql(text).to_arrow_table())
    assert "large" in restricted


@pytest.mark.parametrize("text", WHOLE)
def test_no_row_is_missing_where_keys_do_not_decide(
    eager: None, tables: SqlEngine, oracle: duckdb.DuckDBPyConnection, text: str
) -> None:
    assert ordered(tables.query(text).to_arrow()) == ordered(oracle.sql(text).to_arrow_table())


def test_a_small_table_is_read_whole(tables: SqlEngine, restricted: list[str]) -> None:
    assert tables.query(RESTRICTED[0]).to_arrow().num_rows > 0
    assert not restricted


@pytest.mark.parametrize("seed", range(dose(8, 60)))
def test_random_queries_that_restrict(
    embedded: Database,
    oracle: duckdb.DuckDBPyConnection,
    eager: None,
    seed: int,
) -> None:
    """Twenty queries of a seed over memory of several sizes, beside DuckDB."""
    fill(embedded, oracle, 1_000 * seed, {"a": 500, "b": 60, "c": 300})
    for name in "abc":
        embedded.table(name).maintain("flush")
    sizes = (1 << 11, 1 << 12, 1 << 14, 1 << 17)
    engines = [SqlEngine(embedded._store, SqlLimits(leaf_bytes=size, partitions=2)) for size in sizes]
    queries = Queries(7_000 + seed)
    for _ in range(20):
        text = queries.query()
        expected = ordered(oracle.sql(text).to_arrow_table())
        for engine in engines:
            assert ordered(engine.query(text).to_arrow()) == expected, text


# A table that streams


STREAMED = "SELECT k, count(*) AS n, sum(v) AS v FROM large WHERE v % 3 = 0 GROUP BY k HAVING count(*) > 1"


@pytest.mark.parametrize("leaf_bytes", [0, 1 << 12, 1 << 15])
def test_what_was_read_of_a_table_that_streams_is_not_read_again(
    db: Database, tables: SqlEngine, oracle: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch, leaf_bytes: int
) -> None:
    taken: list[int] = []
    take = BegunRead.take

    def counted(read: BegunRead) -> Any:
        batch = take(read)
        taken.append(0 if batch is None else batch.num_rows)
        return batch

    monkeypatch.setattr(BegunRead, "take", counted)
    engine = SqlEngine(db._store, SqlLimits(leaf_bytes=leaf_bytes, partitions=2))
    expected = ordered(oracle.sql(STREAMED).to_arrow_table())
    for _ in range(3):
        taken.clear()
        assert ordered(engine.query(STREAMED).to_arrow()) == expected
        assert sum(taken) == 4_000
    assert "streamed" in "".join(engine.query(f"EXPLAIN ANALYZE {STREAMED}").to_arrow()["plan"].to_pylist())


def test_a_table_that_is_read_again_and_again_streams_anew(
    db: Database, tables: SqlEngine, oracle: duckdb.DuckDBPyConnection
) -> None:
    engine = SqlEngine(db._store, SqlLimits(leaf_bytes=0, partitions=2))
    text = """
    WITH RECURSIVE t(id, n) AS (
        SELECT CAST(0 AS bigint), CAST(1 AS bigint)
        UNION ALL SELECT l.id, t.n + 1 FROM t JOIN large l ON l.id = t.id + 1000
    ) SELECT id, n FROM t"""
    assert ordered(engine.query(text).to_arrow()) == [("0", "1"), ("1000", "2"), ("2000", "3"), ("3000", "4")]


def test_a_result_that_is_left_ends_the_read(db: Database, tables: SqlEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[BegunRead] = []
    close = BegunRead.close
    monkeypatch.setattr(BegunRead, "close", lambda self: (ends.append(self), close(self))[1])
    engine = SqlEngine(db._store, SqlLimits(leaf_bytes=0, partitions=2))
    with engine.query("SELECT id + 1 FROM large WHERE v % 2 = 0") as result:
        next(iter(result))
    until(lambda: len(ends) == 1)  # by the thread that makes the rows
    assert ends[0].take() is None


def test_rows_of_a_begun_read_are_taken_once(db: Database, tables: SqlEngine) -> None:
    """A second plan, or a part that asks again, fails: it would miss rows."""
    dataset = db.table("large").dataset()
    begun = next(iter(_begun(dataset)))
    first = list(begun.get_fragments())
    again = list(begun.get_fragments())
    assert sum(part.to_table().num_rows for part in first) == 4_000
    for part in (first[0], again[0]):
        with pytest.raises(RuntimeError, match="reads table 'large' twice"):
            part.to_table()


def _begun(dataset: Any) -> Iterator[Any]:
    from nyala.clients.sql.source.dataset import NyalaDataset
    from nyala.schemas.rows.scan import ScanSpec

    stream = dataset.store.scan(ScanSpec(table="large", as_of=dataset.snapshot))
    read = BegunRead(None, dataset.schema.names, [], stream, stream.batches)
    yield NyalaDataset(dataset.store, dataset.table, dataset.snapshot, begun=read, fragments_max=2)


def test_changes_beyond_the_memory_are_refused(db: Database, tables: SqlEngine) -> None:
    before = db.now()
    db.table("large").update({"id": range(2_000), "v": [0] * 2_000})
    engine = SqlEngine(db._store, SqlLimits(leaf_bytes=1 << 10, partitions=2))
    with pytest.raises(UnavailableError, match=r"the changes of table 'large' have more than the 1,024 bytes of sql_l"):
        engine.query("SELECT count(*), max(v) FROM changes('large', ?)", [before]).to_arrow()


# Lists that run first


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("SELECT k FROM few WHERE k IN (SELECT other FROM few GROUP BY other HAVING count(*) < 9)", []),
        ("SELECT k FROM few WHERE other NOT IN (SELECT k FROM other GROUP BY k) ORDER BY k", []),
        ("SELECT k FROM few f WHERE other IN (SELECT max(o.k) FROM other o WHERE o.other = f.k GROUP BY o.s)", [1]),
        ("SELECT k FROM few WHERE k IN (SELECT nothing FROM other GROUP BY k)", None),
        ("SELECT f.k FROM few f WHERE k IN (SELECT k FROM few GROUP BY k HAVING f.k > 2)", [3, 250]),
        ("WITH few AS (SELECT 1 AS k) SELECT k FROM other WHERE other IN (SELECT k FROM few GROUP BY k)", [10]),
    ],
)
def test_lists_with_groups(tables: SqlEngine, text: str, ids: list[int] | None) -> None:
    if ids is None:
        with pytest.raises(InvalidArgumentError, match="nothing"):
            tables.query(text).to_arrow()
        return
    assert tables.query(text).to_arrow()[0].to_pylist() == ids


def test_a_list_that_runs_first_is_a_table_of_the_plan(tables: SqlEngine) -> None:
    text = "SELECT count(*) AS n FROM large WHERE k IN (SELECT k FROM large GROUP BY k HAVING count(*) > 30)"
    lines = tables.query(f"EXPLAIN ANALYZE {text}").to_arrow()["plan"].to_pylist()
    assert sum(line == "table large" for line in lines) == 1
    lines = tables.query(f"EXPLAIN {text}").to_arrow()["plan"].to_pylist()
    assert sum(line == "table large" for line in lines) == 2


def test_a_long_list_runs_with_its_query(db: Database, tables: SqlEngine) -> None:
    engine = SqlEngine(db._store, SqlLimits(leaf_bytes=1 << 10, partitions=2))
    text = "SELECT count(*) AS n FROM large WHERE v IN (SELECT v FROM large GROUP BY v)"
    assert engine.query(text).to_pylist() == [{"n": 4_000}]


# The plan


def _places(text: str) -> dict[str, list[tuple[list[Edge], list[Any]]]]:
    session = SessionContext()
    for name in "abc":
        cells = pa.record_batch({"x": pa.array([1], pa.int64()), "y": pa.array(["q"])})
        session.register_record_batches(name, [[cells]])
    places = places_of(session.sql(text).optimized_logical_plan())
    return {name: [(place.edges, place.trees) for place in each] for name, each in places.items()}


def test_edges_lead_both_ways_of_a_join() -> None:
    assert _places("SELECT a.y FROM a JOIN b ON a.x = b.x") == {
        "a": [([Edge("x", "b", "x")], [])],
        "b": [([Edge("x", "a", "x")], [])],
    }


def test_an_outer_join_restricts_its_inner_side_alone() -> None:
    assert _places("SELECT a.y, b.y FROM a LEFT JOIN b ON a.x = b.x") == {
        "a": [([], [])],
        "b": [([Edge("x", "a", "x")], [])],
    }


def test_names_of_columns_and_subqueries_are_followed() -> None:
    text = "SELECT q.z FROM a JOIN (SELECT x AS z, count(*) AS n FROM b GROUP BY x) q ON a.x = q.z AND a.y <> 'k'"
    assert _places(text)["b"] == [([Edge("x", "a", "x")], [])]


def test_like_is_told_and_what_looks_alike_is_not() -> None:
    places = _places(
        "SELECT x FROM a WHERE y LIKE '%q_r%' AND y NOT LIKE 'a%b' AND y ILIKE 'A_b' AND y LIKE 'x!%%z' ESCAPE '!' "
        "AND y LIKE 'a\\_%b' AND (y LIKE 'k%_' OR x = 1)"
    )
    assert places == {"a": [([], [{"op": "like", "column": "y", "pattern": "%q_r%"}])]}
