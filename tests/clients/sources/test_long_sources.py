"""Cells of some 100 KiB and of 1 MiB that come from PostgreSQL and Kafka."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.errors import PermissionDeniedError
from nyala.schemas.table.table import TableDefinition
from nyala.sources import Position
from nyala.sources.kafka import consume
from tests.clients.sources.kafka_cluster import QUICK, KafkaCluster
from tests.clients.sources.postgres_server import PostgresServer
from tests.clients.test_long_cells import JSON, KIB, MOST, SCHEMA, USUAL, row

DOCS = pa.schema([pa.field("id", pa.int32(), False), ("s", pa.string()), ("b", pa.binary()), ("n", pa.int32())])
LETTERS = "lpad('', {size}, md5(({id} + {more})::text))"


def docs(db: Database, most: int | None = MOST) -> Table:
    return db.create_table("docs", DOCS, "id", [nyala.hash("id", buckets=2)], cell_bytes_max=most)


def insert(*rows: tuple[int, int]) -> list[str]:
    """Return statements that insert rows with cells of a size."""
    return [
        f"INSERT INTO docs SELECT {key}, t, convert_to(reverse(t), 'UTF8'), {key}"
        f" FROM (SELECT {LETTERS.format(size=size, id=key, more=0)} t) cells"
        for key, size in rows
    ]


def same(db: Database, source: PostgresServer) -> list[int]:
    """Compare all cells; return the lengths of the strings."""
    with source.connection() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id, s, b, n FROM docs ORDER BY id")
        expected = [(key, s, None if b is None else bytes(b), n) for key, s, b, n in cursor.fetchall()]
    found = [tuple(each.values()) for each in db.table("docs").scan(ordered=True).to_arrow().to_pylist()]
    assert found == expected, [(each[0], len(each[1] or "")) for each in found]
    return [len(each[1]) for each in found if each[1] is not None]


def test_a_mirror_has_long_cells(embedded: Database, source: PostgresServer, catch_up: Callable[..., Position]) -> None:
    """By the copy, by the stream, and where an update leaves a large value as it is."""
    source.execute("CREATE TABLE docs (id int PRIMARY KEY, s text, b bytea, n int)")
    source.execute(*insert((1, MOST), (2, 300 * KIB), (3, 5)))
    docs(embedded)
    catch_up(embedded, "public.docs")
    assert same(embedded, source) == [MOST, 300 * KIB, 5]
    source.execute(*insert((4, MOST - 1), (5, USUAL + 1)), "UPDATE docs SET n = -n", "DELETE FROM docs WHERE id = 2")
    source.execute(f"UPDATE docs SET s = {LETTERS.format(size=MOST, id=3, more=1)} WHERE id = 3")
    source.together(*insert((6, 500 * KIB)), "UPDATE docs SET n = 7, b = NULL WHERE id = 6")
    catch_up(embedded, "public.docs")
    assert same(embedded, source) == [MOST, MOST, MOST - 1, USUAL + 1, 500 * KIB]


def test_a_mirror_that_copies_again_keeps_the_options_of_its_table(
    embedded: Database, source: PostgresServer, catch_up: Callable[..., Position]
) -> None:
    """Without them the second copy refuses what the first one took."""
    source.execute("CREATE TABLE docs (id int PRIMARY KEY, s text, b bytea, n int)", *insert((1, MOST), (2, 5)))
    docs(embedded).alter().set_option("history_max_age_seconds", 77).set_option("comment", "of the shop").apply()
    before = embedded.table("docs").describe()
    catch_up(embedded, "public.docs")
    catch_up(embedded, "public.docs", again=True)
    assert same(embedded, source) == [MOST, 5]
    after = embedded.table("docs").describe()
    assert after["options"] == before["options"] and after["partitions"] == before["partitions"]
    assert after["table_id"] != before["table_id"], "the rows of the first copy went with their table"


def test_a_user_who_may_not_set_options_copies_again_without_them(
    embedded: Database,
    source: PostgresServer,
    catch_up: Callable[..., Position],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source.execute("CREATE TABLE docs (id int PRIMARY KEY, s text, b bytea, n int)", *insert((1, 5)))
    docs(embedded)
    catch_up(embedded, "public.docs")
    create = Database.create_table_as

    def limited(self: Database, definition: TableDefinition) -> Table:
        if definition.options.takes_more:
            raise PermissionDeniedError("this needs maintain")
        return create(self, definition)

    monkeypatch.setattr(Database, "create_table_as", limited)
    catch_up(embedded, "public.docs", again=True)
    assert same(embedded, source) == [5]
    assert "cell_bytes_max" not in embedded.table("docs").describe()["options"]


@pytest.fixture(scope="module")
def kafka() -> Any:
    cluster = KafkaCluster()
    yield cluster
    cluster.close()


def _arrow(rows: list[dict[str, Any]]) -> bytes:
    table, file = pa.Table.from_pylist(rows, SCHEMA), io.BytesIO()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_messages_bring_long_cells(embedded: Database, kafka: KafkaCluster, form: str) -> None:
    """A row that is too long is a reject; the others of its batch apply."""
    topic = f"long_{form}"
    kafka.create(topic)
    names = [name for name in SCHEMA.names if form == "arrow" or name != "b"]
    rows = [{name: each[name] for name in names} for each in (row(1, MOST), row(2, 200 * KIB), row(3, 5))]
    table = embedded.create_table(topic, SCHEMA, "k", column_options=JSON, cell_bytes_max=MOST)
    too_long = {"k": 4, "s": "x" * (MOST + 1)}
    for each in (*rows, too_long):
        kafka.send(topic, [_arrow([each]) if form == "arrow" else json.dumps(each).encode()])
    result = consume(embedded, kafka.address, [topic], group=topic, format=form, until_caught_up=True, options=QUICK)
    assert (result.messages, result.rejects) == (4, 1)
    found = table.scan(columns=names, ordered=True).to_arrow().to_pylist()
    assert found == rows, [(each["k"], len(each["s"])) for each in found]
    (reject,) = embedded.table("nyala_rejects").scan().to_arrow().to_pylist()
    assert f"more than {MOST:,} bytes" in reject["reason"] and reject["value_bytes"] > MOST
