"""Processes with caches of their own open a store whose objects were put back to an earlier state meanwhile."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, shutil, sys
import pyarrow as pa
import nyala

folder, machine, *values = sys.argv[1:]
for v in values:
    with nyala.open(f"file://{folder}/bucket", name="a", bucket_cache=f"{folder}/{machine}", maintenance="off") as db:
        if not db.tables():
            db.create_table("t", pa.schema([("id", pa.int64()), ("v", pa.string())]), ["id"])
        table = db.table("t")
        if v != "nothing":
            table.insert([{"id": table.count() + each, "v": v} for each in range(100)])
            table.maintain("flush")
        rows = table.scan().to_arrow()["v"].to_pylist()
        table.maintain("compact")
    if v == "at first":
        shutil.copytree(f"{folder}/bucket", f"{folder}/saved")
print(json.dumps([rows.count(v) for v in ("at first", "is gone!", "it stays")]))
"""


def run(folder: Path, machine: str, *values: str) -> list[int]:
    """Write files with these values on a machine; return how many rows it sees of each value."""
    command = [sys.executable, "-c", PROGRAM, str(folder), machine, *values]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_machine_with_an_older_cache_shows_and_compacts_what_is_in_the_bucket(tmp_path: Path) -> None:
    assert run(tmp_path, "one", "at first", "is gone!") == [100, 100, 0]
    shutil.rmtree(tmp_path / "bucket")
    shutil.copytree(tmp_path / "saved", tmp_path / "bucket")
    assert run(tmp_path, "two", "it stays") == [100, 0, 100]
    assert run(tmp_path, "one", "nothing") == [100, 0, 100]
