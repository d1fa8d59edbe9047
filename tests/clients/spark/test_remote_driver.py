"""Spark Connect, and a driver that is killed before its commit: in one process of its own, since each needs one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.api.database import Database
from tests.clients.spark.sessions import needs_java

pytestmark = pytest.mark.spark


@pytest.mark.night
def test_a_driver_that_is_killed_before_its_commit_leaves_nothing(db: Database, uri: str, tmp_path: Path) -> None:
    needs_java()
    schema = pa.schema([("id", pa.int64()), ("city", pa.string())])
    homes = db.create_table("homes", schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    script = Path(__file__).parent / "remote_driver.py"
    with (tmp_path / "log").open("w") as log:
        driver = subprocess.Popen(
            [sys.executable, str(script), uri, str(tmp_path)], stdout=log, stderr=log, start_new_session=True
        )
    try:
        while not (tmp_path / "staged").exists():
            assert driver.poll() is None, (tmp_path / "log").read_text()
            time.sleep(0.2)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    ids = sorted(homes.scan(columns=["id"]).to_arrow()["id"].to_pylist())
    assert ids == [each for each in range(100) if each != 7], "all that was committed, nothing that was staged"
    homes.insert({"id": [100], "city": ["free"]})
