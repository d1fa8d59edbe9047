"""Counters are exact, and never go back, whoever counts at the same time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.scan.read import chunk
from nyala.flight_server.admission.admission import Admission
from nyala.flight_server.requests.server_metrics import ServerMetrics
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.store.metrics import Metrics

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


@pytest.fixture
def many_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Empty:
    """A store that has counted nothing, and has no tables."""

    def metrics(self) -> Metrics:
        return Metrics()

    def tables(self) -> list[str]:
        return []


def value(metrics: Metrics, name: str, **labels: str) -> float:
    (family,) = (family for family in metrics.families if family.name == name)
    return next((sample.value for sample in family.samples if sample.labels == labels), 0.0)


@pytest.mark.usefixtures("many_switches")
def test_no_error_is_lost() -> None:
    counted, admission, each = ServerMetrics(), Admission(ServerConfig()), 20_000
    store: Any = Empty()

    def fail() -> None:
        for _ in range(each):
            counted.failed("do_get", "NOT_FOUND")

    threads = [threading.Thread(target=fail) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now = counted.now(store, admission, None)
    assert value(now, "nyala_request_errors", verb="do_get", code="NOT_FOUND") == 4 * each


def test_a_chunk_is_counted_when_its_outcome_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    decide = chunk.verdicts
    with nyala.open(tmp_path) as db:

        def look() -> None:
            seen.append(value(db._store.metrics(), "nyala_scan_chunks", outcome="read"))

        def watched(*arguments: Any) -> Any:
            look()
            return decide(*arguments)

        table = db.create_table("t", SCHEMA, primary_key=["id"])
        table.insert([{"id": number, "v": number} for number in range(1000)])
        table.maintain("flush")
        monkeypatch.setattr(chunk, "verdicts", watched)
        look()
        assert table.scan(where="v > 5000").to_arrow().num_rows == 0
        assert len(seen) > 1
        look()
        assert set(seen) == {seen[0]}
        assert table.scan(where="v > 500").to_arrow().num_rows == 499
        look()
    assert seen == sorted(seen) and seen[-1] > seen[0]
