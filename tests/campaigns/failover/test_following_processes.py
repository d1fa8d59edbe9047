"""A client loads, scans and gets while the holder of its store ends: no call fails, and each row is there once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import nyala
from tests.campaigns.failover.name_process import Start
from tests.doubles.waiting import until

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
STILL = 200_000
"""Rows that nobody changes."""


@pytest.mark.parametrize(
    ("by_bucket", "ending"),
    [
        pytest.param(False, signal.SIGKILL, marks=pytest.mark.night),
        (True, signal.SIGKILL),
        (False, signal.SIGTERM),
    ],
)
def test_a_holder_that_ends_fails_no_call(
    start: Start, tmp_path: Path, by_bucket: bool, ending: signal.Signals
) -> None:
    first = start()
    first.becomes("holder")
    second = start()
    second.becomes("standby")
    how = {"uri": f"file://{tmp_path / 'bucket'}", "name": "a"} if by_bucket else {"uri": [second.url, first.url]}
    failed: list[BaseException] = []
    done = threading.Event()
    with nyala.connect(**how) as db:  # pyright: ignore[reportArgumentType]
        began = db.now()
        table = db.create_table("t", SCHEMA, ["id"])
        table.insert(pa.table({"id": np.arange(STILL), "v": np.arange(STILL)}, schema=SCHEMA))
        written: list[int] = []

        def safely(work: Callable[[], None]) -> Callable[[], None]:
            def run() -> None:
                try:
                    while not done.is_set():
                        work()
                except BaseException as error:
                    failed.append(error)

            return run

        def load() -> None:
            keys = np.arange(100) + STILL + 100 * len(written)
            table.insert(pa.table({"id": keys, "v": keys}, schema=SCHEMA))
            written.append(len(keys))

        def scan() -> None:
            assert sum(table.scan(where=f"id < {STILL}").to_arrow()["v"].to_pylist()) == STILL * (STILL - 1) // 2

        def get() -> None:
            assert table.get(77) == {"id": 77, "v": 77}

        threads = [threading.Thread(target=safely(work)) for work in (load, scan, get)]
        for thread in threads:
            thread.start()
        until(lambda: len(written) >= 3 or failed)
        first.send(ending)
        second.becomes("holder")
        before = len(written)
        until(lambda: len(written) >= before + 5 or failed)
        done.set()
        for thread in threads:
            thread.join(60)
        assert not failed and len(written) >= before + 5
        changes = table.changes(since=began, every=True).to_arrow()["id"].to_pylist()
        assert sorted(changes) == list(range(STILL + 100 * len(written)))
