"""Files that are cut, removed, or not read by the disk any more, under a running server: it goes on, and says which.

The server is a process of its own, since what is tested against is its death: a page of a mapped file that is not there
is a SIGBUS. EIO comes from a library that is laid over the C library's reads (`eio.c`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala
from nyala.engine.fs import LocalFileSystem
from nyala.engine.offload.direct.reader import PinnedReader
from nyala.schemas.errors import CorruptionError, InvalidArgumentError, StoreError, UnavailableError
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.store.bulk import ImportBegin, ImportCommit
from nyala.schemas.store.direct import PinSnapshot
from tests.engine.offload.bulk.importing import built

ROWS = 3_000
SCHEMA = pa.schema([pa.field("k", pa.int64(), False), ("v", pa.int32()), ("s", pa.string())])
PROGRAM = Path(__file__).with_name("server_without_cache.py")
MAINTENANCE = ["minor_compact", "major_compact", "compact", "flush_deltas"]


def rows(version: int, first: int = 0, last: int = ROWS) -> pa.Table:
    keys = range(first, last)
    return pa.table([keys, [version] * len(keys), [f"{key} in {version}" for key in keys]], schema=SCHEMA)


class Server:
    """A server process on a directory, and a client of it."""

    def __init__(self, directory: Path, **environment: str) -> None:
        self.directory = directory
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(directory)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self._process.stdout is not None
        self.database = nyala.connect(json.loads(self._process.stdout.readline())["location"], retries=False)

    def make(self, name: str) -> tuple[Any, int, Callable[[str], list[Path]]]:
        """Make a table with base, undo and redo files; return it, a moment of its past, and how to find its files."""
        old = set(self.directory.glob("tablets/*"))
        table = self.database.create_table(name, SCHEMA, primary_key=["k"])
        (home,) = set(self.directory.glob("tablets/*")) - old
        table.upsert(rows(0))
        table.maintain("flush")
        moment = self.database.now()
        table.upsert(rows(1))
        table.maintain("flush_deltas")
        table.maintain("major_compact")
        table.upsert(rows(2, last=ROWS // 2))
        table.maintain("flush_deltas")
        assert shows(table) == 2
        assert shows(table, moment) == 0
        return table, moment, lambda suffix: sorted(home.glob(f"*.{suffix}"))

    def check(self, healthy: Any, *lost: Path) -> None:
        """The server lives; a table whose files are sound is read and written; `health` names those that are not."""
        assert self._process.poll() is None, f"the server died: {self._process.returncode}"
        assert shows(healthy) == 2
        healthy.upsert(rows(2, last=10))
        found = self.database._store.health()
        assert {file.path for file in found.damaged} >= {str(path.relative_to(self.directory)) for path in lost}
        if lost:
            assert found.status == "degraded"

    def stop(self) -> None:
        self.database.close()
        self._process.kill()
        self._process.wait(60)
        if self._process.stdout:
            self._process.stdout.close()


def shows(table: Any, moment: int | None = None) -> int:
    """Return the version that a table shows, all rows of which must be right."""
    found = table.scan(as_of=moment, ordered=True).to_arrow()
    if moment:
        assert found.equals(rows(0))
        return 0
    assert found.equals(pa.concat_tables([rows(2, last=ROWS // 2), rows(1, first=ROWS // 2)]))
    return 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("store"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def healthy(server: Server) -> Any:
    return server.make("healthy")[0]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink], ids=["cut", "empty", "removed"])
@pytest.mark.parametrize("suffix", ["base", "redo", "undo"])
def test_a_lost_column_file(server: Server, healthy: Any, suffix: str, damage: Callable[[Path], None]) -> None:
    table, moment, files = server.make(f"{suffix}_{damage.__name__}")
    lost = files(suffix)[-1]
    damage(lost)
    with pytest.raises(CorruptionError, match=lost.name):
        shows(table, moment)
        shows(table)
    server.check(healthy, lost)
    # What is open still has its bytes after it was removed, so that maintenance may bring them to a new file.
    work = [partial(table.maintain, kind) for kind in MAINTENANCE]
    for each in (partial(table.upsert, rows(2, last=10)), *work, partial(shows, table), partial(shows, table, moment)):
        try:
            each()
        except StoreError as error:
            assert error.code == "CORRUPTION"
            assert str(server.directory) not in error.message
    server.check(healthy)
    server.database.drop_table(table.name)


def test_a_lost_staged_part(server: Server, healthy: Any) -> None:
    for number, damage in enumerate((cut, empty, Path.unlink)):
        transaction = server.database.transaction(f"T{number}")
        transaction.write("healthy", rows(2, last=100))
        (staged,) = server.directory.glob("staging/*.stage")
        damage(staged)
        with pytest.raises(StoreError, match=staged.name) as caught:
            transaction.commit()
        assert caught.value.code == "CORRUPTION"
        staged.unlink(missing_ok=True)
    server.check(healthy)


def test_a_lost_pin(server: Server, healthy: Any) -> None:
    table, _, _ = server.make("pinned")
    for damage in (Path.unlink, cut):
        pinned = server.database._store.pin_snapshot(PinSnapshot(table="pinned"))
        (lost, *_) = sorted((server.directory / pinned.directory).rglob("*.base"))
        damage(lost)
        with pytest.raises(StoreError) as caught:
            PinnedReader(pinned, LocalFileSystem(server.directory))
        assert caught.value.code == "CORRUPTION"
        server.check(healthy)
    with pytest.raises(CorruptionError, match="base"):  # a pin is another name of the file, which was cut with it
        shows(table)
    server.check(healthy)


def test_a_lost_file_of_an_import(server: Server, healthy: Any) -> None:
    for damage in (cut, empty, Path.unlink):
        plan = server.database._store.import_begin(ImportBegin(table="healthy"))
        files = built(plan, LocalFileSystem(server.directory), rows(2, first=ROWS, last=ROWS + 50).to_batches())
        damage(server.directory / plan.staging / files[0].name)
        with pytest.raises(InvalidArgumentError, match=files[0].name):
            server.database._store.import_commit(ImportCommit(import_id=plan.import_id, files=tuple(files)))
        server.check(healthy)


def test_a_lost_manifest_is_written_anew(server: Server, healthy: Any) -> None:
    for damage in (cut, empty, Path.unlink):
        damage(server.directory / "manifest")
        server.check(healthy)
        healthy.maintain("flush")
        server.database.create_table(f"after_{damage.__name__}", SCHEMA, primary_key=["k"])
        assert (server.directory / "manifest").stat().st_size > 500


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the library that makes reads fail is compiled here")
def test_a_disk_that_does_not_give_the_bytes(tmp_path: Path) -> None:
    library, control = tmp_path / "eio.so", tmp_path / "control"
    source = Path(__file__).with_name("eio.c")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    server = Server(tmp_path / "store", LD_PRELOAD=str(library), EIO_CONTROL=str(control))
    try:
        healthy, _, _ = server.make("healthy")
        table, moment, files = server.make("t")
        for suffix in ("base", "redo", "undo"):
            lost = files(suffix)[-1]
            control.write_text(f"/{lost.parent.name}/{lost.name}")
            with pytest.raises(UnavailableError, match=rf"{lost.name} cannot be read: Input/output error") as caught:
                shows(table, moment)
                shows(table)
            assert str(server.directory) not in caught.value.message
            for kind in MaintenanceKind:
                try:
                    table.maintain(kind)
                except UnavailableError as error:
                    assert lost.name in error.message
            server.check(healthy, lost)
            control.write_text("")
            assert (shows(table), shows(table, moment)) == (2, 0), "the disk is as it was, and so is all that is on it"
            table, moment, files = server.make(f"after_{suffix}")
    finally:
        server.stop()
