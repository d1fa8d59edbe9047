"""A store of one table under test, with every state that it has ever shown by the timestamp of the commit."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pyarrow as pa

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.manifest.environment import Environment
from nyala.engine.mvcc.clock import Clock
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.engine.tablet.tablet import Tablet
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.scan import ScanSpec
from nyala.schemas.rows.write import WriteCommand, WriteResult
from nyala.schemas.table.table import TableDefinition

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int32()), ("s", pa.string())])
Row = tuple[int, int | None, str | None]
State = dict[int, Row]


class Subject:
    """Writes go to the store and to a dict; ``check`` compares them at every snapshot there was."""

    def __init__(
        self,
        fs: FileSystem | None = None,
        clock: Clock | None = None,
        table_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.fs: FileSystem = fs or MemoryFileSystem()
        self.clock = clock
        self.options = StoreOptions(
            **{"maintenance": "off", "wal_segment_bytes": 1 << 12, "scan_threads": 1, **options}
        )
        self.store = self._open()
        if "t" not in self.store.tables():
            self.store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"], options=table_options))
        self.state: State = {}
        self.history: list[tuple[int, State]] = [(self.store.now(), {})]

    @property
    def tablet(self) -> Tablet:
        (tablet,) = self.store._catalog.table("t").tablets
        return tablet

    @property
    def environment(self) -> Environment:
        return self.store._environment

    def upsert(self, *keys: int, v: int | None = 0, s: str | None = "s") -> WriteResult:
        rows = [(key, v, s) for key in keys]
        self.state = {**self.state, **{row[0]: row for row in rows}}
        return self._commit("upsert", batch(rows))

    def delete(self, *keys: int) -> WriteResult:
        self.state = {key: row for key, row in self.state.items() if key not in keys}
        return self._commit("delete_ignore", batch([(key, None, None) for key in keys]).select(["k"]))

    def flush(self) -> int:
        return self.store.maintain("t", "flush")["rows"]

    def flush_deltas(self) -> int:
        return self.store.maintain("t", "flush_deltas")["rows"]

    def some_writes(self, random: Random, keys: range, commits: int = 3) -> None:
        """Upsert and delete some of ``keys``; what was deleted may come back."""
        for _ in range(commits):
            chosen = random.sample(keys, random.randint(1, len(keys)))
            if random.random() < 0.3:
                self.delete(*chosen)
            else:
                text = random.choice([None, "", "text", "x" * 40])
                self.upsert(*chosen, v=random.choice([None, random.randint(-99, 99)]), s=text)

    def check(self) -> None:
        """Compare scans, some of them ordered, at every snapshot there was, and look-ups, with the states."""
        for number, (timestamp, state) in enumerate(self.history):
            ordered = number % 4 == 0
            rows = self.scan(as_of=timestamp, ordered=ordered)
            assert (rows if ordered else sorted(rows)) == sorted(state.values())
        keys = sorted({key for _, state in self.history for key in state})
        found = self.store.get("t", pa.record_batch({"k": pa.array(keys, pa.int64())})).to_pylist()
        assert [tuple(row.values()) for row in found] == [self.state[key] for key in keys if key in self.state]
        assert self.tablet.live_rows == len(self.state)

    def scan(self, **spec: Any) -> list[Row]:
        rows = self.store.scan(ScanSpec(table="t", **spec)).to_reader().read_all()
        return list(zip(*(rows[name].to_pylist() for name in rows.schema.names), strict=True))

    def restart(self) -> None:
        """Stop cleanly and open again."""
        self.store.close()
        self.store = self._open()

    def crash(self, random: Random) -> None:
        """Go on with what a power failure at this moment leaves on the disk."""
        assert isinstance(self.fs, MemoryFileSystem)
        image = self.fs.crash_image(random)
        self.store.close()
        self.fs = image
        self.store = self._open()
        assert not self.store.health().damaged, "the disk keeps what was synced"

    def close(self) -> None:
        """Check, stop, and verify the files offline."""
        self.check()
        self.store.close()
        report = verify_store(self.fs)
        assert report.is_sound, report.problems

    def _open(self) -> Store:
        return Store.open(self.fs, self.options, self.clock)

    def _commit(self, op: str, rows: pa.RecordBatch) -> WriteResult:
        result = self.store.write(WriteCommand(table="t", op=Operation(op)), rows)
        assert not result.error_count, result.errors
        self.history.append((result.timestamp, self.state))
        return result


def batch(rows: list[Row]) -> pa.RecordBatch:
    """Return rows as a batch of the table."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.RecordBatch.from_arrays(
        [pa.array(cells, field.type) for cells, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )
