"""What two writers see of each other, as scripts: the anomalies of databases in `anomalies/`.

A line is a step, and behind ``=>`` what it shows. A writer that ``begins`` takes a moment: it reads as of then, and its
commit has the condition that none of its rows has changed since. A writer that has not begun reads what is there now.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.schemas.errors import ConflictError, RowErrors

SCRIPTS = sorted(Path(__file__).with_name("anomalies").glob("*.txt"))
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int64())])


class Writer:
    """Reads at the moment when it began, and collects what it will commit."""

    def __init__(self, db: Database) -> None:
        self.db, self.table = db, db.table("t")
        self.moment: int | None = None
        self.writes: list[dict[str, int]] = []

    def begins(self) -> None:
        self.moment, self.writes = self.db.now(), []

    def reads(self, key: str) -> str:
        rows = self.table.scan(where=f"k = {key}", as_of=self.moment).to_arrow().to_pylist()
        return str(rows[0]["v"]) if rows else "nothing"

    def counts(self, where: str) -> str:
        return str(self.table.scan(where=where, as_of=self.moment).count())

    def writes_later(self, key: str, value: str) -> None:
        assert self.moment is not None, "it has not begun"
        self.writes.append({"k": int(key), "v": int(value)})

    def writes_at_once(self, key: str, value: str) -> None:
        self.table.upsert([{"k": int(key), "v": int(value)}])

    def deletes_at_once(self, key: str) -> None:
        self.table.delete([{"k": int(key)}])

    def commits(self) -> str:
        try:
            with self.db.transaction(if_timestamp=self.moment) as transaction:
                transaction.upsert("t", self.writes)
        except (ConflictError, RowErrors) as error:
            assert "CONFLICT" in str(error)
            return "CONFLICT"
        finally:
            self.moment = None
        return "committed"


STEPS: dict[str, Callable[..., str | None]] = {
    r"begins": Writer.begins,
    r"reads (\d+)": Writer.reads,
    r"counts (.+)": Writer.counts,
    r"writes (\d+) = (\d+) at once": Writer.writes_at_once,
    r"deletes (\d+) at once": Writer.deletes_at_once,
    r"writes (\d+) = (\d+)": Writer.writes_later,
    r"commits": Writer.commits,
}


def step(writers: dict[str, Writer], db: Database, line: str) -> str | None:
    """Make one step; return what it shows."""
    if line == "rows":
        rows = db.table("t").scan(ordered=True).to_arrow().to_pylist()
        return ", ".join(f"{row['k']}: {row['v']}" for row in rows)
    name, words = line.split(" ", 1)
    for pattern, action in STEPS.items():
        if match := re.fullmatch(pattern, words):
            return action(writers.setdefault(name, Writer(db)), *match.groups())
    raise ValueError(f"this is no step: {line}")


@pytest.mark.parametrize("between", ["nothing", "flush", "compact"])
@pytest.mark.parametrize("script", SCRIPTS, ids=[script.stem for script in SCRIPTS])
def test_writers_see_what_the_script_says(db: Database, script: Path, between: str) -> None:
    lines = [line.split("=>") for line in script.read_text().splitlines() if line and not line.startswith("#")]
    assert len(lines) > 10 and lines[0][0].strip() == "rows"
    table = db.create_table("t", SCHEMA, ["k"])
    table.insert([dict(zip("kv", map(int, cell.split(":")), strict=True)) for cell in lines[0][1].split(",")])
    writers: dict[str, Writer] = {}
    for line, *shown in lines:
        if between != "nothing":
            table.maintain("flush")
            table.maintain(between)
        answer = step(writers, db, line.strip())
        assert [answer] == [part.strip() for part in shown] or (answer is None and not shown), line


def test_there_is_a_script_of_each_anomaly() -> None:
    assert [script.stem for script in SCRIPTS] == ["lost_update", "phantom", "write_skew"]
