"""Steps of a driver that may be killed in each, at random, with the rows that each must leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import nyala

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])
KEYS = 3_000
TABLE = "nyala.default.t"
Rows = dict[int, int]


@dataclass
class Step:
    """What a driver is asked to do with a table."""

    name: str
    order: dict[str, Any]
    """For the driver: the name of a method, and its arguments."""
    after: Rows
    """What is in ``table`` when it is done."""
    check: Callable[[Any], None] = lambda result: None
    """Compare what it did beside that."""
    table: str = "t"
    """The one that it changes or reads."""
    commits_to: str | None = None
    """The one whose commits show that it has nearly ended; None if there are none."""
    ends_with_server: bool = False
    """The server forgets it, by its promise, when it is restarted: the step fails, and is made again."""


def as_rows(pairs: Iterable[tuple[int, int]]) -> Rows:
    """Raises AssertionError if a key comes twice."""
    found = list(pairs)
    rows = dict(found)
    assert len(rows) == len(found), f"{len(found) - len(rows)} rows doubled"
    return rows


def compare(what: str, found: Rows, expected: Rows) -> None:
    """Raises AssertionError if rows are lost, are there beside those that are expected, or have other values."""
    lost, more = expected.keys() - found.keys(), found.keys() - expected.keys()
    other = [key for key in expected.keys() & found.keys() if expected[key] != found[key]]
    said = f"{what}: {len(lost)} rows lost, {len(more)} too many, {len(other)} with other values"
    assert not lost and not more and not other, f"{said}: {sorted(lost)[:5]} {sorted(more)[:5]} {sorted(other)[:5]}"


@dataclass
class Steps:
    """Makes steps for the rows that are there."""

    random: Random
    db: nyala.Database
    folder: Path
    since: int
    """Before the first row."""
    tables: dict[str, Rows] = field(default_factory=lambda: {"t": {}, "log": {}})
    """What is in the tables now."""
    number: int = 0

    @property
    def rows(self) -> Rows:
        return self.tables["t"]

    @property
    def names(self) -> list[str]:
        return [name.removeprefix("_make_") for name in dir(self) if name.startswith("_make_")]

    def make(self, name: str) -> Step:
        self.number += 1
        return getattr(self, f"_make_{name}")()

    def table_rows(self, name: str = "t") -> Rows:
        found = self.db.table(name).scan().to_arrow()
        return as_rows(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))

    def _source(self, is_new: bool = False) -> tuple[list[int], Rows]:
        """Return what the driver makes rows of, and these rows."""
        step, count = self.random.randint(1, 7), self.random.randint(50, 400)
        first = self.random.randrange(KEYS)
        if is_new:
            step, first = 1, max(self.rows, default=0) + 1
        keys = range(first, first + step * count, step)
        return [first, step, count, self.number], {key: key * 7 + self.number for key in keys}

    def _file(self, rows: Rows) -> str:
        path = self.folder / f"rows-{self.number}.parquet"
        data = pa.table([pa.array(rows.keys(), pa.int64()), pa.array(rows.values(), pa.int64())], schema=SCHEMA)
        pq.write_table(data, path, row_group_size=100)
        return str(path)

    def _make_merge(self) -> Step:
        source, rows = self._source()
        sql = f"""MERGE INTO {TABLE} t USING source s ON t.id = s.id WHEN MATCHED AND s.v % 5 = 0 THEN DELETE
            WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)"""
        merged = {key: self.rows[key] + v if key in self.rows else v for key, v in rows.items()}
        kept = {key: v for key, v in merged.items() if key not in self.rows or rows[key] % 5}
        after = {key: v for key, v in self.rows.items() if key not in rows} | kept
        return Step("MERGE", {"do": "sql", "text": sql, "source": source}, after, commits_to="t")

    def _make_update(self) -> Step:
        part = self.random.randrange(3)
        sql = f"UPDATE {TABLE} SET v = v + 1 WHERE shaky(id) % 3 = {part}"
        after = {key: v + (key % 3 == part) for key, v in self.rows.items()}
        return Step("UPDATE", {"do": "sql", "text": sql}, after, commits_to="t")

    def _make_delete(self) -> Step:
        part = self.random.randrange(7)
        sql = f"DELETE FROM {TABLE} WHERE shaky(id) % 7 = {part}"
        after = {key: v for key, v in self.rows.items() if key % 7 != part}
        return Step("DELETE", {"do": "sql", "text": sql}, after, commits_to="t")

    def _make_insert(self) -> Step:
        source, rows = self._source(is_new=True)
        sql = f"INSERT INTO {TABLE} SELECT id, v FROM source"
        return Step("INSERT", {"do": "sql", "text": sql, "source": source}, self.rows | rows, commits_to="t")

    def _make_append_sql(self) -> Step:
        source, rows = self._appended()
        order = {
            "do": "sql",
            "text": "INSERT INTO nyala.default.log (id, v) SELECT id, v FROM source",
            "source": source,
        }
        return Step("INSERT of rows without a key", order, self.tables["log"] | rows, table="log", commits_to="log")

    def _make_append(self) -> Step:
        source, rows = self._appended()
        order = {"do": "write", "source": source, "table": "log", "operation": "insert"}
        return Step("df.write of rows without a key", order, self.tables["log"] | rows, table="log", commits_to="log")

    def _appended(self) -> tuple[list[int], Rows]:
        """Return new rows of ``log``, whose keys need not be unique: one that is staged twice is there twice."""
        first, count = max(self.tables["log"], default=0) + 1, self.random.randint(50, 200)
        return [first, 1, count, self.number], {key: key * 7 + self.number for key in range(first, first + count)}

    def _make_write(self) -> Step:
        source, rows = self._source()
        return Step("df.write", {"do": "write", "source": source}, self.rows | rows, commits_to="t")

    def _make_load(self) -> Step:
        _, rows = self._source()
        return Step("load", {"do": "load", "path": self._file(rows)}, self.rows | rows, commits_to="t")

    def _make_bulk_import(self) -> Step:
        _, rows = self._source(is_new=True)
        order = {"do": "bulk_import", "path": self._file(rows)}
        return Step("bulk import", order, self.rows | rows, commits_to="t", ends_with_server=True)

    def _make_bulk_compact(self) -> Step:
        return Step("bulk compaction", {"do": "bulk_compact"}, self.rows, ends_with_server=True)

    def _make_read(self) -> Step:
        return Step("read", {"do": "read", "form": "nyala"}, self.rows, self._is_all)

    def _make_plain_read(self) -> Step:
        return Step("read without the shim", {"do": "read", "form": "nyala_plain"}, self.rows, self._is_all)

    def _make_direct_read(self) -> Step:
        return Step("direct read", {"do": "read", "form": "direct"}, self.rows, self._is_all, ends_with_server=True)

    def _is_all(self, result: list[tuple[int, int]]) -> None:
        compare("what was read", as_rows((key, v) for key, v in result), self.rows)

    def _make_restore(self) -> Step:
        return self._copied("restore")

    def _make_copy(self) -> Step:
        return self._copied("copy")

    def _copied(self, job: str) -> Step:
        name = f"made_{self.number}"
        return Step(job, {"do": job, "name": name}, self.rows, lambda _: self._is_copied(name))

    def _is_copied(self, name: str) -> None:
        compare(name, self.table_rows(name), self.rows)
        self.db.drop_table(name)

    def _make_export(self) -> Step:
        name = f"export-{self.number}"
        return Step("export", {"do": "export", "name": name}, self.rows, lambda _: self._is_exported(name))

    def _is_exported(self, name: str) -> None:
        found = pq.read_table(self.folder / name)
        compare(name, as_rows(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)), self.rows)

    def _make_stream_copy(self) -> Step:
        return self.stream("copy", "nyala")

    def _make_stream_journal(self) -> Step:
        return self.stream("journal", "nyala")

    def _make_plain_stream_copy(self) -> Step:
        return self.stream("copy", "nyala_plain")

    def _make_plain_stream_journal(self) -> Step:
        return self.stream("journal", "nyala_plain")

    def stream(self, name: str, form: str) -> Step:
        """A query that ends with all that has changed."""
        check = self._copy_is_equal if name == "copy" else self._journal_is_whole
        told = f"stream of {name}" if form == "nyala" else f"stream of {name} without the shim"
        order = {"do": "stream", "name": name, "form": form, "since": self.since}
        return Step(told, order, self.rows, lambda _: check(), commits_to=name)

    def _copy_is_equal(self) -> None:
        compare("the copy", self.table_rows("copy"), self.rows)

    def _journal_is_whole(self) -> None:
        """Each change inserts a row into the journal: one that comes twice has been refused."""
        journal = self.db.table("journal").scan().to_arrow().select(["at", "id", "op", "v"])
        feed = self.db.table("t").changes(self.since, every=True).to_arrow()
        feed = feed.rename_columns({"_timestamp": "at", "_op": "op"}).select(["at", "id", "op", "v"])
        found, expected = ({tuple(row.values()) for row in each.to_pylist()} for each in (journal, feed))
        lost, more = expected - found, found - expected
        assert not lost and not more, f"the journal: {len(lost)} changes lost, {len(more)} nobody made"
