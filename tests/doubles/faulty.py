"""A file system whose calls fail on purpose, by rule."""

from __future__ import annotations

import errno
import fnmatch
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nyala.engine.fs.filesystem import FileLock, FileSystem, ReadableFile, WritableFile, views_of

if TYPE_CHECKING:
    from nyala.engine.fs.filesystem import BytesLike

CONTENT = frozenset({"pread", "read_into", "view"})
"""The calls that return bytes of a file."""
READS = CONTENT | {"open", "check", "list", "exists", "is_linked", "size", "free_bytes", "total_bytes"}
WRITES = frozenset({"append", "pwrite"})
SYNCS = frozenset({"sync", "sync_file", "sync_directory"})
NAMES = frozenset({"create", "rename", "link", "unlink", "make_directory", "remove_directory", "lock"})
EVERY_CALL = READS | WRITES | SYNCS | NAMES


@dataclass(frozen=True)
class FaultRule:
    """The ``nth`` of the matching calls (1 is the first), and with ``sticky`` every later one, raises ``error``.

    ``short_write`` lets that many bytes of a failing write through first.  The call has no other effect: a failed
    sync makes nothing durable.

    A rule for ``CONTENT`` may lie instead of failing: ``short_read`` cuts the result to this many bytes, as if the file
    were truncated, and ``flip`` inverts this bit of it (counted from its first, modulo its length).

    >>> FaultRule(calls=SYNCS, path="wal/*", nth=3, error=errno.EIO, sticky=True).nth
    3
    """

    calls: frozenset[str] = EVERY_CALL
    path: str = "*"
    nth: int = 1
    error: int = errno.EIO
    short_write: int = 0
    sticky: bool = False
    short_read: int | None = None
    flip: int | None = None

    @property
    def lies(self) -> bool:
        """Whether the call succeeds with wrong bytes."""
        return self.short_read is not None or self.flip is not None


class FaultyFileSystem:
    """``inner`` with ``rules`` applied to its calls.  The first rule that fires wins.

    ``calls`` counts every call, so that a test can fail each in turn; ``injected`` names the calls that failed.
    """

    def __init__(self, inner: FileSystem, rules: Sequence[FaultRule] = ()) -> None:
        self.inner = inner
        self.rules = list(rules)
        self.calls = 0
        self.injected: list[str] = []
        self._matched = [0] * len(self.rules)
        self._mutex = threading.Lock()

    def create(self, path: str, preallocate: int = 0) -> WritableFile:
        self.check("create", path)
        return FaultyWritableFile(self, path, self.inner.create(path, preallocate))

    def open(self, path: str) -> ReadableFile:
        self.check("open", path)
        return FaultyReadableFile(self, path, self.inner.open(path))

    def sync_file(self, path: str) -> None:
        self.check("sync_file", path)
        self.inner.sync_file(path)

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        self.inner.rename(old, new)

    def link(self, old: str, new: str, into: FileSystem | None = None) -> None:
        self.check("link", new)
        self.inner.link(old, new, into.inner if isinstance(into, FaultyFileSystem) else into)

    def is_linked(self, old: str, new: str, into: FileSystem | None = None) -> bool:
        self.check("is_linked", old)
        return self.inner.is_linked(old, new, into.inner if isinstance(into, FaultyFileSystem) else into)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        self.inner.unlink(path)

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        self.inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self.check("remove_directory", path)
        self.inner.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        self.inner.sync_directory(path)

    def list(self, path: str) -> list[str]:
        self.check("list", path)
        return self.inner.list(path)

    def exists(self, path: str) -> bool:
        self.check("exists", path)
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        self.check("size", path)
        return self.inner.size(path)

    def lock(self, path: str) -> FileLock:
        self.check("lock", path)
        return self.inner.lock(path)

    def free_bytes(self, path: str) -> int:
        self.check("free_bytes", path)
        return self.inner.free_bytes(path)

    def total_bytes(self, path: str) -> int:
        self.check("total_bytes", path)
        return self.inner.total_bytes(path)

    def check(self, call: str, path: str) -> None:
        """Count the call, and raise the error of a matching rule."""
        rule = self.fault_of(call, path)
        if rule is not None and not rule.lies:
            raise self.error_of(rule, path)

    def fault_of(self, call: str, path: str) -> FaultRule | None:
        with self._mutex:
            self.calls += 1
            fired = None
            for number, rule in enumerate(self.rules):
                if call in rule.calls and fnmatch.fnmatchcase(path, rule.path):
                    self._matched[number] += 1
                    due = self._matched[number] - rule.nth
                    if fired is None and (due == 0 or (due > 0 and rule.sticky)):
                        fired = rule
            if fired is not None:
                what = "other bytes" if fired.lies else errno.errorcode[fired.error]
                self.injected.append(f"{call} {path}: {what}")
            return fired

    @staticmethod
    def error_of(rule: FaultRule, path: str) -> OSError:
        return OSError(rule.error, f"injected {errno.errorcode[rule.error]}", path)


class FaultyWritableFile:
    def __init__(self, disk: FaultyFileSystem, path: str, inner: WritableFile) -> None:
        self._disk = disk
        self._path = path
        self._inner = inner

    @property
    def size(self) -> int:
        return self._inner.size

    def append(self, data: BytesLike) -> None:
        self._write("append", self.size, (data,))

    def pwrite(self, offset: int, *pieces: BytesLike) -> None:
        self._write("pwrite", offset, pieces)

    def flush(self) -> None:
        self._inner.flush()

    def sync(self) -> None:
        self._disk.check("sync", self._path)
        self._inner.sync()

    def check(self) -> None:
        self._disk.check("check", self._path)
        self._inner.check()

    def close(self) -> None:
        self._inner.close()

    def _write(self, call: str, offset: int, pieces: Sequence[BytesLike]) -> None:
        rule = self._disk.fault_of(call, self._path)
        if rule is None:
            self._inner.pwrite(offset, *pieces)
            return
        if rule.short_write:
            whole = b"".join(views_of(pieces))
            self._inner.pwrite(offset, whole[: rule.short_write])
        raise self._disk.error_of(rule, self._path)


class FaultyReadableFile:
    def __init__(self, disk: FaultyFileSystem, path: str, inner: ReadableFile) -> None:
        self._disk = disk
        self._path = path
        self._inner = inner

    @property
    def size(self) -> int:
        return self._inner.size

    def pread(self, offset: int, length: int) -> bytes:
        rule = self._fault_of("pread")
        content = bytearray(self._inner.pread(offset, length))
        return bytes(_falsified(memoryview(content), rule))

    def read_into(self, offset: int, buffer: BytesLike) -> int:
        rule = self._fault_of("read_into")
        count = self._inner.read_into(offset, buffer)
        return len(_falsified(memoryview(buffer)[:count], rule))  # pyright: ignore[reportArgumentType]

    def view(self) -> memoryview:
        rule = self._fault_of("view")
        return _falsified(memoryview(bytearray(self._inner.view())), rule).toreadonly()

    def check(self) -> None:
        self._disk.check("check", self._path)
        self._inner.check()

    def close(self) -> None:
        self._inner.close()

    def _fault_of(self, call: str) -> FaultRule | None:
        rule = self._disk.fault_of(call, self._path)
        if rule is not None and not rule.lies:
            raise self._disk.error_of(rule, self._path)
        return rule


def _falsified(content: memoryview, rule: FaultRule | None) -> memoryview:
    """Return ``content`` as changed by a rule, perhaps in place."""
    if rule is None:
        return content
    if rule.flip is not None and len(content):
        bit = rule.flip % (8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
    return content if rule.short_read is None else content[: rule.short_read]
