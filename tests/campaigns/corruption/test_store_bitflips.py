"""Flip every bit of every file of a small store: the store says CORRUPTION, or its rows are exactly right.

The one exception is documented: after an unclean stop, damage in the last group of the log cannot be told from a torn
write, so that group may be missing, whole.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.wal.reader import LogReader
from nyala.schemas.errors import CorruptionError, InvalidArgumentError, StoreError
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.crash.images import contents
from tests.campaigns.crash.workloads import SCHEMA, TABLE, Run, open_store, read, row
from tests.dose import dose

EVERY_BIT_BYTES = 3_000
"""In a longer file one bit of each byte is flipped, a different one each time."""
CASES = [
    # kind of file, how the store was stopped, whether every bit is flipped
    ("manifest", "clean", True),
    ("wal", "clean", False),
    ("wal", "unclean", dose(False, True)),
    ("base", "clean", dose(False, True)),
    ("undo", "clean", False),
    ("redo", "clean", False),
    ("base", "compacted", False),
]


@dataclass(frozen=True)
class Victim:
    """A store at rest: its files, and what must be read now, without the last batch, and at an earlier moment."""

    files: dict[str, bytes | None]
    moments: tuple[int, int]
    rows: list[dict]
    """At ``moments[0]``, now without the last batch, now."""
    last_group: tuple[str, int]
    """Where the log's last group starts."""

    def disk(self, path: str, content: bytes) -> MemoryFileSystem:
        """Return a disk with the store, one file replaced."""
        disk = MemoryFileSystem()
        for name, original in self.files.items():
            if original is None:
                disk.make_directory(name)
                continue
            file = disk.create(name)
            file.append(content if name == path else original)
            file.close()
        return disk


@cache
def victim(stop: str) -> Victim:
    """Make a store with base, undo and redo files and two groups in its log that are in no file; stop it."""
    fs = MemoryFileSystem()
    run = Run(fs)
    run.restart()
    assert run.store is not None
    options = {"text": {"encoding": "dictionary"}, "batch": {"compression": "zstd"}}
    run.store.create_table(TableDefinition.from_arrow(TABLE, SCHEMA, ["id"], options))
    run.write("insert", [row(number, 0) for number in range(6)])
    run.write("update", [{"id": 1, "batch": 1}])
    run.maintain("flush")
    run.write("delete", [{"id": 2}])
    run.write("update", [{"id": 3, "text": "changed"}])
    run.maintain("flush_deltas")
    if stop == "compacted":
        run.maintain("major_compact")
    run.write("insert", [row(10, 4)])
    before = run.oracle.now()
    run.write("upsert", [row(11, 5), row(0, 5)])
    files = dict(contents(fs))
    run.abandon()
    if stop != "unclean":
        files = dict(contents(fs))
        del files["manifest.copy"]  # it would stand for the manifest: tests/engine/recovery/repair/test_manifest.py
    reader = LogReader(fs, "wal")
    group = list(reader.groups())[-1]
    moments = (run.moments[0], run.moments[-1])
    return Victim(files, moments, [run.oracle.as_of(moments[0]), before, run.oracle.now()], (group.path, group.offset))


def flips(content: bytes, every_bit: bool) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, content with one bit flipped). Of the zeroes that a log segment ends in, some will do."""
    used = len(content.rstrip(b"\0"))
    every_bit = every_bit and used <= EVERY_BIT_BYTES
    stride = 1 if every_bit else dose(3, 1)
    for offset in [*range(0, used, stride), *range(used, len(content), 32 * stride)]:
        for bit in range(8) if every_bit and offset < used else [offset % 8]:
            damaged = bytearray(content)
            damaged[offset] ^= 1 << bit
            yield offset, bytes(damaged)


def outcome(store: Victim, path: str, content: bytes) -> str:
    """Open the damaged store and read it at two moments; return what was seen, in a word."""
    try:
        opened = open_store(store.disk(path, content))
        try:
            now, then = read(opened), read(opened, store.moments[0])
        finally:
            opened.close()
    except CorruptionError as error:
        return "named" if error.path == path else f"blames {error.path}"
    except InvalidArgumentError:
        return "refused"
    except StoreError as error:
        return f"{error.code}: {error.message}"
    if then != store.rows[0]:
        return f"wrong history: {then}"
    return {2: "right", 1: "prefix"}.get(_position(store.rows, now), f"wrong rows: {now}")


def _position(rows: list[dict], found: dict) -> int:
    return next((position for position in (2, 1) if rows[position] == found), 0)


def kind_of(path: str) -> str:
    return "wal" if path.startswith("wal/") else path.rpartition(".")[2]


@pytest.mark.parametrize(("kind", "stop", "every_bit"), CASES)
def test_no_bit_can_change_a_row(kind: str, stop: str, every_bit: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    store = victim(stop)
    seen: Counter[str] = Counter()
    paths = [path for path, content in store.files.items() if content and kind_of(path) == kind]
    assert paths, f"the store has no {kind} file"
    for path in paths:
        content = store.files[path]
        assert content is not None
        for offset, damaged in flips(content, every_bit):
            found = outcome(store, path, damaged)
            allowed = {"named", "refused", "right"}
            if stop == "unclean" and path == store.last_group[0] and offset >= store.last_group[1]:
                allowed.add("prefix")
            assert found in allowed, f"{path}, byte {offset}: {found}"
            seen[found] += 1
    assert seen["named"] > dose(30, 100)
    # Bytes that no checksum covers would show up here: only what is not read may be damaged and unnoticed.
    assert seen["right"] <= seen.total() // 10, seen


def test_the_undamaged_store_reads_right() -> None:
    for stop in ("clean", "unclean"):
        assert outcome(victim(stop), "", b"") == "right"
