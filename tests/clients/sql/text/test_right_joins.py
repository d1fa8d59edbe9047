"""RIGHT and FULL JOIN with conditions on both sides, beside DuckDB."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.clients.sql.engine import SqlEngine
from nyala.clients.sql.fences import SqlLimits
from nyala.clients.sql.text.parsed_text import read_text
from nyala.clients.sql.text.right_joins import without_right_joins
from nyala.schemas.errors import InvalidArgumentError

P = {"id": [1, 2], "x": [1, 2], "s": ["a", "b"]}
Q = {"id": [1, 2, 3, 4, 5, 6, 7, 8], "x": [1, 2, 1, 3, 9, 3, 1, 2], "y": [1, 2, 7, 8, 9, None, 1, 2]}
JOINS = ["RIGHT JOIN", "RIGHT OUTER JOIN", "FULL JOIN", "LEFT JOIN"]
CONDITIONS = ["p.id IS NULL", "p.x IS NULL", "coalesce(p.x, 0) < 2", "(p.id > 1) IS NOT TRUE"]


@pytest.fixture
def joined(embedded: Database) -> Iterator[tuple[Database, duckdb.DuckDBPyConnection]]:
    with duckdb.connect() as oracle:
        for name, columns in {"p": P, "q": Q}.items():
            given = pa.table(columns)
            embedded.create_table(name, primary_key="id", data=given)
            oracle.register("given", given)
            oracle.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        yield embedded, oracle


def _rows(table: pa.Table) -> list[str]:
    return sorted(str(row) for row in zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize("leaf_bytes", [0, 1 << 28], ids=["streamed", "read first"])
@pytest.mark.parametrize("join", JOINS)
def test_conditions_stay_at_their_tables(
    joined: tuple[Database, duckdb.DuckDBPyConnection], join: str, leaf_bytes: int
) -> None:
    database, oracle = joined
    engine = SqlEngine(database._store, SqlLimits(leaf_bytes=leaf_bytes))
    for condition in CONDITIONS:
        for columns in ("q.id", "p.id, q.x", "*"):
            for on in ("ON p.x = q.y", "ON p.x = q.y AND q.id > 1"):
                text = f"SELECT {columns} FROM p {join} q {on} WHERE q.x < 4 AND {condition}"
                assert _rows(engine.query(text).to_arrow()) == _rows(oracle.sql(text).to_arrow_table()), text
        text = f"SELECT q.id FROM p {join} q USING (x) WHERE q.x < 4 AND {condition}"
        assert _rows(engine.query(text).to_arrow()) == _rows(oracle.sql(text).to_arrow_table()), text


TEXTS = {
    "SELECT a.x FROM a JOIN b ON a.x = b.x RIGHT JOIN c ON a.y = c.y": (
        "SELECT a.x FROM c LEFT JOIN (a JOIN b ON a.x = b.x ) ON a.y = c.y"
    ),
    "SELECT * FROM a RIGHT JOIN s.b AS c ON a.x = c.x, d": (
        'SELECT "a".*, "c".*, "d".* FROM s.b AS c LEFT JOIN a ON a.x = c.x, d'
    ),
    "SELECT 1 FROM d, a RIGHT JOIN (SELECT 2 AS x) b USING (x)": (
        "SELECT 1 FROM d, (SELECT 2 AS x) b LEFT JOIN a USING (x)"
    ),
    "SELECT 1 FROM a RIGHT JOIN (b RIGHT JOIN c ON true) ON true": (
        "SELECT 1 FROM (c LEFT JOIN b ON true) LEFT JOIN a ON true"
    ),
    "SELECT right(s, 2) FROM a": "SELECT right(s, 2) FROM a",
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    assert " ".join(without_right_joins(text, read_text(text)).split()) == TEXTS[text]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT * FROM p RIGHT JOIN q USING (x)", "name the columns, or write LEFT JOIN"),
        ("SELECT p.id FROM p RIGHT JOIN q LEFT JOIN p AS r ON r.x = q.x ON p.x = q.x", "parentheses around that join"),
    ],
)
def test_what_is_refused(joined: tuple[Database, duckdb.DuckDBPyConnection], text: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        joined[0].sql(text)
