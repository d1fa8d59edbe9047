"""Staging goes on when the connection breaks or the server is restarted: each row of a transaction is there once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.clients.cluster import transactions
from nyala.clients.flight import server_wait, staging_put
from nyala.schemas.errors import RowErrors, UnavailableError
from nyala.schemas.rows.transaction import StagedBatch, TransactionCommit
from nyala.schemas.rows.write import Stage, WriteCommand
from tests.clients.flight.test_read_retries import Restarting
from tests.clients.flight.test_retries import SCHEMA, batch, proxy, rows
from tests.doubles.proxy import Proxy
from tests.doubles.waiting import PATIENT

__all__ = ["proxy", "rows"]
COUNT = 60


@pytest.fixture(params=[1 << 10, 64 << 20], ids=["many parts", "one part"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(staging_put, "KEPT_BYTES_MAX", request.param)
    return request.param


def command(part: str = "p") -> WriteCommand:
    return WriteCommand(table="rows", stage=Stage(transaction="x", part=part))


def breaking(proxy: Proxy, at: set[int]) -> Iterator[StagedBatch]:
    for number in range(COUNT):
        if number in at:
            proxy.lose_answers()
            threading.Timer(0.2, proxy.cut).start()
        yield StagedBatch(batch(10 * number))


@pytest.mark.usefixtures("rows")
def test_a_part_is_staged_once_through_broken_connections(proxy: Proxy, kept: int) -> None:
    with nyala.connect(proxy.url) as database:
        store = database._store
        staged = store.stage(command(), breaking(proxy, {20, 59}))
        assert staged.rows == sum(staged.part_rows) == 10 * COUNT
        assert (len(staged.parts) > 5) == (kept < 1 << 20) and staged.parts[0] == staged.part == "p"
        result = store.commit_transaction(TransactionCommit(transaction="x", parts=staged.parts))
        assert (result.applied, result.error_count) == (10 * COUNT, 0)
        assert database.table("rows").scan(ordered=True).to_arrow()["id"].to_pylist() == list(range(10 * COUNT))


def test_a_transaction_goes_on_through_a_killed_and_restarted_server(
    tmp_path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_wait, "_PAUSES", PATIENT)
    server = Restarting(tmp_path)
    with nyala.connect(server.url) as database:
        database.create_table("rows", SCHEMA, ["id"])

        def coming() -> Iterator[pa.RecordBatch]:
            for number in range(COUNT):
                if number == COUNT // 2:
                    server.kill_for_a_moment()
                yield batch(1000 * number, 1000)

        with database.transaction() as transaction:
            transaction.insert("rows", pa.RecordBatchReader.from_batches(SCHEMA, coming()))
        assert transaction.result is not None and transaction.result.applied == 1000 * COUNT
        assert database.table("rows").scan().count() == 1000 * COUNT
    server.kill()


def test_errors_have_the_positions_of_what_was_written(remote: Database, kept: int) -> None:
    table = remote.create_table("rows", SCHEMA, ["id"])
    table.insert({"id": [70_000], "v": [1]})
    data = pa.Table.from_batches([batch(start, 50_000) for start in range(0, 200_000, 50_000)])
    transaction = remote.transaction()
    transaction.insert("rows", {"id": [-1], "v": [0]})
    transaction.insert("rows", data)
    with pytest.raises(RowErrors) as refused:
        transaction.commit()
    (error,) = refused.value.result.errors
    assert (error.row, error.part) == (70_000, "2")  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.usefixtures("rows")
def test_rows_that_break_off_are_not_staged(remote: Database, kept: int) -> None:
    def broken() -> Iterator[StagedBatch]:
        yield StagedBatch(batch(0))
        raise UnavailableError("the source is gone")

    store = remote._store
    with pytest.raises(UnavailableError, match="the source is gone"):
        store.stage(command(), broken())
    with pytest.raises(nyala.NotFoundError):
        store.commit_transaction(TransactionCommit(transaction="x", parts=["p"]))


def test_a_part_over_several_servers_has_the_same_names_on_all() -> None:
    assert transactions.named is staging_put.named
    long = command("p" * 128)
    assert [staging_put.named(command(), number).stage for number in (0, 2)] == [
        Stage(transaction="x", part="p"),
        Stage(transaction="x", part="p~2"),
    ]
    assert len({staging_put.named(long, number).model_dump_json() for number in range(4)}) == 4
