"""What an operation costs, in units that no machine changes: functions, pages, allocations, calls of the disk."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from nyala.engine.cfile import page
from nyala.engine.fs.filesystem import views_of
from tests.doubles.faulty import CONTENT, SYNCS, WRITES, FaultRule, FaultyFileSystem

if TYPE_CHECKING:
    from nyala.engine.fs.filesystem import BytesLike, ReadableFile, WritableFile

PRODUCT = str(Path(page.__file__).parents[2])
_FOLDERS = ("clients/", "engine/", "flight_server/", "nyala/", "schemas/")
"""The folders of the product: the tests stand beside them, and perhaps the libraries too."""
COUNTERS = (
    "functions",
    "allocations",
    "pages read",
    "pages decoded",
    "deltas applied",
    "reads",
    "bytes read",
    "writes",
    "bytes written",
    "syncs",
)


class CountingFileSystem(FaultyFileSystem):
    """``inner``, with its calls and bytes counted."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.counts: Counter[str] = Counter()

    def fault_of(self, call: str, path: str) -> FaultRule | None:
        for name, group in (("reads", CONTENT), ("writes", WRITES), ("syncs", SYNCS)):
            self.counts[name] += call in group
        return super().fault_of(call, path)

    def create(self, path: str, preallocate: int = 0) -> WritableFile:
        return _CountingFile(self, super().create(path, preallocate))  # pyright: ignore[reportReturnType]

    def open(self, path: str) -> ReadableFile:
        return _CountingFile(self, super().open(path))  # pyright: ignore[reportReturnType]


class _CountingFile:
    def __init__(self, disk: CountingFileSystem, inner: Any) -> None:
        self._counts = disk.counts
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def append(self, data: BytesLike) -> None:
        self._counts["bytes written"] += _size([data])
        self._inner.append(data)

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        self._counts["bytes written"] += _size(pieces)
        self._inner.pwrite(offset, *pieces)

    def pread(self, offset: int, length: int) -> bytes:
        content = self._inner.pread(offset, length)
        self._counts["bytes read"] += len(content)
        return content

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        count = self._inner.read_into(offset, buffer)
        self._counts["bytes read"] += count
        return count

    def view(self) -> memoryview:
        content = self._inner.view()
        self._counts["bytes read"] += len(content)
        return content


def _size(pieces: Sequence[BytesLike]) -> int:
    return sum(map(len, views_of(pieces)))


def counted(operation: Callable[[], object], disk: CountingFileSystem) -> dict[str, int]:
    """Run an operation on this thread; return what it costs, by the names in ``COUNTERS``.

    "functions" are calls of the product's own functions in Python. Other threads' are not counted.
    """
    codes: Counter[CodeType] = Counter()

    def enter(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes[frame.f_code] += 1

    gc.collect()  # else what earlier operations left is deleted during this one, or not
    gc.disable()
    disk.counts.clear()
    before = pa.default_memory_pool().num_allocations()
    sys.setprofile(enter)
    try:
        operation()
    finally:
        sys.setprofile(None)
        gc.enable()
    after = pa.default_memory_pool().num_allocations()
    found = {
        "functions": sum(_entries(codes, folder) for folder in _FOLDERS),
        "allocations": after - before + _entries(codes, "engine/vectors/memory/huge_pages.py", ["__init__"]),
        "pages read": _entries(codes, "engine/cfile/page.py", ["load_page"]),
        "pages decoded": _entries(codes, "engine/codecs/", ["decode", "gather"])
        + _entries(codes, "engine/rowset/native/morsel.py", ["_add_page"]),
        "deltas applied": _entries(codes, "engine/delta/patch.py", ["apply", "at"])
        + _entries(codes, "engine/rowset/native/morsel.py", ["_add_patch"]),
        **disk.counts,
    }
    return {name: found.get(name, 0) for name in COUNTERS}


def _entries(codes: Counter[CodeType], where: str, names: Sequence[str] = ()) -> int:
    return sum(
        count
        for code, count in codes.items()
        if code.co_filename.startswith(f"{PRODUCT}/{where}") and (not names or code.co_name in names)
    )
