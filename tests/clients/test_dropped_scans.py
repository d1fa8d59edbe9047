"""What a server keeps for a scan that is not read to its end, not even begun, is released at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.clients.flight.held_batches import HeldBatches
from nyala.clients.flight.scan_reader import ScanReader
from nyala.schemas.protocol.service import ScanStream
from nyala.schemas.rows.scan import ScanSpec
from tests.clients.test_planned_scans import Aged
from tests.clients.test_planned_scans import aged as aged
from tests.doubles.waiting import until

ENDS: dict[str, Callable[[list[ScanStream]], None]] = {
    "closed": lambda held: held[0].close(),
    "dropped": lambda held: held.clear(),
    "dropped as a reader": lambda held: drop_reader(held.pop()),
    "closed after a batch": lambda held: close_after_one(held[0]),
}


def drop_reader(found: ScanStream) -> None:
    reader = found.to_reader()
    assert reader.schema.names == ["id", "v", "s"]


def close_after_one(found: ScanStream) -> None:
    next(found.batches)
    found.close()


def is_free(aged: Aged) -> bool:
    gc.collect()
    return len(aged.store._planned) == 0 and not aged.server.calls.running()


@pytest.mark.parametrize("end", ENDS)
def test_a_scan_that_is_not_read_keeps_nothing(aged: Aged, end: str) -> None:
    held = [aged.table._store.scan(ScanSpec(table="t"))]
    assert len(aged.store._planned) == 1
    ENDS[end](held)
    until(lambda: is_free(aged), seconds=5)


def test_a_part_that_is_not_read_keeps_no_stream(aged: Aged) -> None:
    client: Any = aged.table._store
    ticket = ScanSpec.model_validate_json(client.parts(ScanSpec(table="t")).parts[0].ticket)
    held = client.scan(ticket)
    held.close()
    until(lambda: not aged.server.calls.running(), seconds=5)
    assert held.rest is not None


def failing(monkeypatch: pytest.MonkeyPatch, error: nyala.StoreError, times: int = 1) -> None:
    """Let scans of planned parts fail at first."""
    errors, real = [error] * times, ScanReader.open

    def opened(reader: ScanReader) -> pa.Schema:
        if errors:
            raise errors.pop()
        return real(reader)

    monkeypatch.setattr(ScanReader, "open", opened)


def test_a_plan_that_is_made_again_keeps_one(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, nyala.ConflictError("the columns have changed"), times=3)
    held = aged.table._store.scan(ScanSpec(table="t"))
    assert len(aged.store._planned) == 1
    assert held.to_table().num_rows == 1000
    assert len(aged.store._planned) == 0


@pytest.mark.parametrize("error", [nyala.PermissionDeniedError("not you"), nyala.ConflictError("the columns changed")])
def test_a_scan_that_cannot_begin_keeps_nothing(
    aged: Aged, monkeypatch: pytest.MonkeyPatch, error: nyala.StoreError
) -> None:
    failing(monkeypatch, error, times=100)
    with pytest.raises(type(error)):
        aged.table._store.scan(ScanSpec(table="t"))
    assert len(aged.store._planned) == 0


def test_a_table_that_is_altered_while_it_is_planned_keeps_one(aged: Aged, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = aged.table._store
    real, count = aged.store.describe_table, [0]

    def describe(name: str) -> Any:
        count[0] += 1
        about = real(name)
        return about.model_copy(update={"schema_version": 7}) if count[0] < 4 else about

    monkeypatch.setattr(aged.store, "describe_table", describe)
    parts = client.parts(ScanSpec(table="t"))
    assert count[0] == 4 and len(aged.store._planned) == 1
    client.release_scan(parts.lease)
    monkeypatch.setattr(aged.store, "describe_table", fail)
    with pytest.raises(nyala.NotFoundError):
        client.parts(ScanSpec(table="t"))
    assert len(aged.store._planned) == 0


def fail(name: str) -> Any:
    raise nyala.NotFoundError(f"there is no table {name!r}")


def test_nothing_is_kept_for_a_scan_without_parts(aged: Aged) -> None:
    parts = aged.table._store.parts(ScanSpec(table="t", where="id = 1 and id = 2"))  # type: ignore[attr-defined]
    assert bool(parts.parts) == (parts.lease is not None)
    aged.table.scan(where="id = 1 and id = 2").to_arrow()
    until(lambda: len(aged.store._planned) == bool(parts.parts))


# HeldBatches alone


def batches(count: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"n": [number]}) for number in range(count)]


def held(count: int, ends_by_itself: bool = True) -> tuple[HeldBatches, list[str]]:
    released: list[str] = []
    return HeldBatches(iter(batches(count)), lambda: released.append("released"), ends_by_itself), released


@pytest.mark.parametrize("ends_by_itself", [True, False])
def test_what_is_read_to_the_end_is_released_once_at_most(ends_by_itself: bool) -> None:
    found, released = held(3, ends_by_itself)
    assert list(found) == batches(3) and list(found) == []
    found.close()
    del found
    assert released == [] if ends_by_itself else released == ["released"]


@pytest.mark.parametrize("read", [0, 1])
def test_what_is_left_is_released_once(read: int) -> None:
    found, released = held(3)
    for _ in range(read):
        next(found)
    found.close()
    found.close()
    del found
    assert released == ["released"]


def test_an_error_releases() -> None:
    def broken() -> Any:
        yield batches(1)[0]
        raise ValueError("broken")

    released: list[str] = []

    def release() -> None:
        released.append("released")
        raise nyala.UnavailableError("the server is gone")

    found = HeldBatches(broken(), release)
    with pytest.raises(ValueError, match="broken"):
        list(found)
    assert released == ["released"]
