"""Joins that compute on after they were given up, in a process of their own: nothing else ends them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import os, sys
import nyala

db = nyala.open(sys.argv[1])
db.create_table("many", primary_key="id", data={"id": list(range(200_000))})
endless = "SELECT count(*) FROM many a, many b, many c WHERE (a.id * b.id + c.id) % 7 = 3"
for _ in range(4):  # three hold threads; the fourth is refused
    for text in (endless, "SELECT id % 7 AS k, count(*) AS n FROM many GROUP BY 1 ORDER BY 1 LIMIT 1"):
        try:
            print(db.sql(text, timeout=1 if text == endless else 30).to_pylist())
        except nyala.UnavailableError as error:
            print(error)
print(db.sql("SELECT count(*) AS n FROM many").to_pylist(), flush=True)
os._exit(0)
"""


def test_statements_run_beside_joins_that_compute_on(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    late, rows = "the statement takes longer than its timeout of 1 s", "[{'k': 0, 'n': 28572}]"
    *first, refusal, again, after, store_alone = ran.stdout.splitlines()
    assert first == [late, rows, late, rows, late] and refusal == again == after
    assert refusal.startswith("3 statements that were canceled or took too long still run in this process")
    assert store_alone == "[{'n': 200000}]"
