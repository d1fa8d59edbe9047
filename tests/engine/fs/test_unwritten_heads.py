"""A file whose head cannot be written is closed: each one left open would hold a descriptor until the process ends."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from nyala.engine.cfile.writer import CFileWriter
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.offload.bulk.runs import _RunFile
from nyala.engine.transaction.staging.file import PartInfo, PartWriter
from tests.doubles.faulty import FaultRule, FaultyFileSystem, FaultyWritableFile

INFO = PartInfo(transaction="load", part="1", table_id=7, staged_at=1_700_000_000_000_000)
WRITERS: dict[str, Callable[[FileSystem], object]] = {
    "a staged part": lambda fs: PartWriter(fs, "x", INFO),
    "a file of columns": lambda fs: CFileWriter(fs, "x", 1, "base"),
    "a run of an import": lambda fs: _RunFile(fs, "x", pa.schema([("id", pa.int64())])),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_without_a_head_is_closed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[FaultyWritableFile] = []
    monkeypatch.setattr(FaultyWritableFile, "close", lambda file: closed.append(file))
    fs = FaultyFileSystem(MemoryFileSystem(), [FaultRule(calls=frozenset({"append", "pwrite"}))])
    with pytest.raises(OSError, match="injected"):
        WRITERS[kind](fs)
    assert fs.injected and len(closed) == 1
