"""Many writers of a few counters by INSERT ... ON CONFLICT DO UPDATE, through the front door: none is lost."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import nullcontext
from random import Random

import pytest

import nyala
from nyala.clients.api.database import Database
from tests.dose import dose

WRITERS = 8
EACH = dose(25, 2_000)
ROWS = 5
RAISE = """
INSERT INTO c (id, n, most, last) VALUES ($1, $2, $2, $3)
ON CONFLICT (id) DO UPDATE SET n = c.n + excluded.n, most = greatest(c.most, excluded.most), last = excluded.last
"""


@pytest.mark.parametrize("door", ["embedded", "remote"])
def test_no_increment_is_lost(request: pytest.FixtureRequest, door: str) -> None:
    db: Database = request.getfixturevalue(door)
    url = request.getfixturevalue("url") if door == "remote" else None
    db.sql("CREATE TABLE c (id bigint PRIMARY KEY, n bigint, most bigint, last text, note text DEFAULT 'new')")
    sums: Counter[int] = Counter()
    most: Counter[int] = Counter()
    failures: list[Exception] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        random = Random(number)
        try:
            with nullcontext(db) if url is None else nyala.connect(url) as mine:
                for _ in range(EACH):
                    key, value = random.randrange(ROWS), random.randrange(1, 100)
                    assert mine.sql(RAISE, [key, value, f"w{number}"]).changed == 1
                    with lock:
                        sums[key] += value
                        most[key] = max(most[key], value)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rows = db.sql("SELECT id, n, most, last, note FROM c").to_pylist()
    assert {row["id"]: (row["n"], row["most"]) for row in rows} == {key: (sums[key], most[key]) for key in sums}
    assert all(row["last"].startswith("w") and row["note"] == "new" for row in rows)
