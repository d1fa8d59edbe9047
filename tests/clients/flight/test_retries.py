"""Loads go on when the connection breaks or the server is restarted: no row is lost, none is applied twice."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.flight import server_wait
from nyala.clients.flight.numbered import NumberedPut, Writer
from nyala.clients.flight.server_wait import ServerWait
from nyala.engine.store import Store
from nyala.schemas.errors import InvalidArgumentError, RowErrors, UnavailableError
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from tests.doubles.ports import free_port
from tests.doubles.proxy import Proxy
from tests.doubles.waiting import PATIENT

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
INSERT = WriteCommand(table="rows", op=Operation.INSERT)


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(int(url.rpartition(":")[2]))
    yield proxy
    proxy.close()


@pytest.fixture
def rows(store: Store) -> Table:
    return Database(store).create_table("rows", SCHEMA, ["id"])


def batch(start: int, count: int = 10) -> pa.RecordBatch:
    ids = pa.array(range(start, start + count), pa.int64())
    return pa.record_batch([ids, ids], schema=SCHEMA)


def breaking(proxy: Proxy, at: set[int], count: int = 60) -> Iterator[pa.RecordBatch]:
    """Batches of ten rows; before some of them the answers to those before are lost with their connection."""
    for number in range(count):
        if number in at:
            proxy.lose_answers()
            threading.Timer(0.3, proxy.cut).start()
        yield batch(10 * number)


def test_a_load_goes_on_through_broken_connections(proxy: Proxy, rows: Table) -> None:
    with nyala.connect(proxy.url) as database:
        results = list(database._store.write_all(INSERT, breaking(proxy, {20, 45})))
    assert [(result.rows, result.applied, result.error_count) for result in results] == [(10, 10, 0)] * 60
    assert rows.scan(ordered=True).to_arrow()["id"].to_pylist() == list(range(600))


def test_a_single_write_whose_answer_is_lost_is_answered(proxy: Proxy, rows: Table) -> None:
    with nyala.connect(proxy.url) as database:
        table = database.table("rows")
        assert table.insert({"id": [1], "v": [1]}).applied == 1
        proxy.lose_answers()
        threading.Timer(0.3, proxy.cut).start()
        assert table.insert({"id": [2, 3], "v": [2, 3]}).applied == 2
    assert rows.scan().count() == 3


def test_a_staged_stream_whose_answer_is_lost_is_answered(proxy: Proxy, rows: Table) -> None:
    data = pa.Table.from_batches([batch(0, 100_000), batch(100_000, 100_000)])
    with nyala.connect(proxy.url) as database:
        table = database.table("rows")
        proxy.lose_answers()
        threading.Timer(0.5, proxy.cut).start()
        result = table.write(data, "insert", commit="stream")
    assert (result.rows, result.applied, result.error_count) == (200_000, 200_000, 0)
    assert rows.scan(as_of=result.timestamp - 1).count() == 0 and rows.scan().count() == 200_000


def test_without_retries_a_lost_answer_is_an_error(proxy: Proxy, rows: Table) -> None:
    with nyala.connect(proxy.url, retries=False) as database:
        table = database.table("rows")
        proxy.lose_answers()
        threading.Timer(0.3, proxy.cut).start()
        with pytest.raises(UnavailableError):
            table.insert({"id": [1], "v": [1]})


def not_small(*_: Any) -> None:
    return None


def test_a_server_that_stays_away_is_an_error() -> None:
    def gone(*_: Any) -> Any:
        raise UnavailableError("gone")

    put = NumberedPut(gone, Writer("w", iter(range(9))), ServerWait(lambda: True, True), not_small)
    with pytest.raises(UnavailableError, match="gone"):
        put.write_only(INSERT, batch(0))


def test_a_read_only_server_is_an_error_at_once() -> None:
    calls: list[int] = []

    def refusing(*_: Any) -> Any:
        calls.append(1)
        raise UnavailableError("read-only")

    put = NumberedPut(refusing, Writer("w", iter(range(9))), ServerWait(lambda: False, True), not_small)
    with pytest.raises(UnavailableError, match="read-only"):
        list(put.write_all(INSERT, [batch(0), batch(10)]))
    assert len(calls) == 1


@pytest.mark.parametrize("whole", [2, 4, 40])
@pytest.mark.parametrize("how", [{}, {"commit": "stream"}])
def test_an_error_of_the_source_is_no_end_of_a_write(remote: Database, whole: int, how: dict[str, Any]) -> None:
    def source() -> Iterator[pa.RecordBatch]:
        for number in range(whole):
            yield batch(70_000 * number, 70_000 if whole < 40 else 10)
        raise UnavailableError("the source is away")

    table = remote.create_table("rows", SCHEMA, ["id"])
    with pytest.raises(UnavailableError, match="the source is away"):
        table.upsert(pa.RecordBatchReader.from_batches(SCHEMA, source()), **how)
    assert table.upsert(batch(0)).applied == 10


def serve(directory: Path, port: int) -> subprocess.Popen[str]:
    program = (
        "import sys; from nyala.flight_server.serve.lifecycle import run_server; "
        "from nyala.flight_server.settings.config import ServerConfig; from nyala.engine.store import Store; "
        "from nyala.engine.options import StoreOptions; "
        "options = StoreOptions(flush_bytes=96 << 10, wal_segment_bytes=128 << 10); "
        "run_server(lambda: Store.open(sys.argv[1], options), f'grpc://127.0.0.1:{sys.argv[2]}', ServerConfig(), "
        "lambda location: print(location, flush=True))"
    )
    command = [sys.executable, "-c", program, str(directory), str(port)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_load_goes_on_through_a_killed_and_restarted_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_wait, "_PAUSES", PATIENT)
    port = free_port()
    server = serve(tmp_path, port)
    assert server.stdout and server.stdout.readline()
    with nyala.connect(f"grpc://127.0.0.1:{port}") as database:
        table = database.create_table("rows", SCHEMA, ["id"])

        def batches() -> Iterator[pa.RecordBatch]:
            nonlocal server
            for number in range(300):
                if number == 150:
                    server.kill()
                    server.wait()
                    server = serve(tmp_path, port)
                yield batch(1000 * number, 1000)

        results = list(database._store.write_all(INSERT, batches()))
        assert [(result.applied, result.error_count) for result in results] == [(1000, 0)] * 300
        assert table.scan(columns=["id"]).count() == 300_000
    server.terminate()
    server.wait(20)


# Numbers of one's own


def test_a_numbered_write_may_be_sent_again(db: Database) -> None:
    table = db.create_table("rows", SCHEMA, ["id"])
    data = {"id": [1, 2], "v": [1, 2]}
    first = table.write(data, "insert", writer="job 7", seq=0)
    assert table.write(data, "insert", writer="job 7", seq=0) == first
    with pytest.raises(RowErrors):
        table.write(data, "insert", writer="job 7", seq=1)
    with pytest.raises(RowErrors) as again:
        table.write(data, "insert", writer="job 7", seq=1)
    assert again.value.result.error_count == 2
    assert table.scan().count() == 2


ALTERATIONS: dict[str, Any] = {
    "a column was dropped": lambda table: table.alter().drop_column("v"),
    "a column was renamed": lambda table: table.alter().rename_column("v", "w"),
    "the key was renamed": lambda table: table.alter().rename_column("id", "number"),
    "a column is another one": lambda table: table.alter().drop_column("v").add_column("v", "date"),
    "a column came that must not be NULL": lambda table: table.alter().add_column(
        "n", "int64", nullable=False, read_default=0
    ),
}


@pytest.mark.parametrize("change", list(ALTERATIONS))
@pytest.mark.parametrize("form", ["columns", "stream"])
def test_a_numbered_write_gets_its_first_answer_after_an_alteration(db: Database, change: str, form: str) -> None:
    table = db.create_table("rows", SCHEMA, ["id"])

    def data(count: int = 2) -> Any:
        rows = pa.table({"id": range(count), "v": range(count)}, SCHEMA)
        return rows.to_reader() if form == "stream" else {"id": list(range(count)), "v": list(range(count))}

    first = table.write(data(), "insert", writer="job 7", seq=0)
    ALTERATIONS[change](table).apply()
    before = table.scan(ordered=True).to_arrow()
    for again in (table, db.table("rows")):
        assert again.write(data(), "insert", writer="job 7", seq=0) == first
    with pytest.raises(InvalidArgumentError):
        table.write(data(3), "insert", writer="job 7", seq=0)
    if "came" not in change:
        with pytest.raises(InvalidArgumentError, match=r"'v'|'id'"):
            table.write(data(), "insert", writer="job 7", seq=1)
        with pytest.raises(InvalidArgumentError, match=r"'v'|'id'"):
            table.write(data(), "insert", writer="job 8", seq=0)
    assert table.scan(ordered=True).to_arrow().equals(before)


def test_a_refused_numbered_write_is_refused_again_after_an_alteration(db: Database) -> None:
    table = db.create_table("rows", SCHEMA, ["id"])
    table.insert({"id": [1], "v": [1]})
    for _ in range(2):
        with pytest.raises(RowErrors) as refused:
            table.write({"id": [1, 2], "v": [1, 2]}, "insert", writer="w", seq=0)
        assert (refused.value.result.applied, refused.value.result.errors[0].row) == (1, 0)
        if "v" in table.schema.names:
            table.alter().drop_column("v").apply()


def test_numbers_of_a_dropped_table_mean_nothing(db: Database) -> None:
    table = db.create_table("rows", SCHEMA, ["id"])
    table.write({"id": [1], "v": [1]}, "insert", writer="w", seq=0)
    db.drop_table("rows", keep_seconds=1000)
    with pytest.raises(nyala.NotFoundError):
        table.write({"id": [1], "v": [1]}, "insert", writer="w", seq=0)
    db.recall_table("rows")
    assert table.write({"id": [1], "v": [1]}, "insert", writer="w", seq=0).applied == 1
    assert table.scan().count() == 1


@pytest.mark.parametrize("number", [{"writer": "w"}, {"seq": 0}, {"writer": "", "seq": 0}, {"writer": "w", "seq": -1}])
def test_half_a_number_is_refused(db: Database, number: dict[str, Any]) -> None:
    table = db.create_table("rows", SCHEMA, ["id"])
    with pytest.raises(InvalidArgumentError):
        table.write({"id": [1], "v": [1]}, **number)


def test_a_stream_that_is_one_commit(db: Database) -> None:
    table = db.create_table("rows", SCHEMA, ["id"])
    table.insert({"id": [70_000], "v": [1]})
    data = pa.Table.from_batches([batch(start, 50_000) for start in range(0, 200_000, 50_000)])
    result = table.write(data, "insert", commit="stream", on_error="return")
    assert (result.rows, result.applied) == (200_000, 199_999)
    assert [(error.row, error.code) for error in result.errors] == [(70_000, "ALREADY_PRESENT")]
    assert table.scan(as_of=result.timestamp - 1).count() == 1
    assert table.scan(as_of=result.timestamp).count() == 200_000


def test_writers_are_lent_to_one_stream_at_a_time(remote: Database) -> None:
    table = remote.create_table("rows", SCHEMA, ["id"])
    errors: list[BaseException] = []

    def load(first: int) -> None:
        try:
            for number in range(20):
                table.insert(batch(first + 10 * number))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=load, args=(1000 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and table.scan().count() == 1600
