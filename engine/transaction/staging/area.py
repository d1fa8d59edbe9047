"""StagingArea: the parts of transactions that wait on disk for their commit, until they expire.

Nothing else refers to a staged file: a part exists if its file is complete and durable. A store that opens again finds
the parts: complete ones survive a restart, unfinished ones are removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import pyarrow as pa

from ....schemas.errors import ConflictError, CorruptionError, NotFoundError
from ....schemas.protocol.request import NOBODY, Owner, owner
from ....schemas.rows.operation import Operation
from ....schemas.rows.write import Stage
from ... import threads
from ...commit.room import Room
from ...fs.failures import named
from ...fs.filesystem import FileSystem
from ...manifest.files import reign_of
from ...mvcc.clock import Clock
from .file import PartInfo, PartWriter, Shape, read_info, read_rows

ROOT = "staging"
_SUFFIX = ".stage"
_ABANDONED = 24
"""After so many times to live without a part a transaction is discarded by who opens the store. Its time begins anew
with each opening, so one that is opened again and again would keep it for ever."""


def staged_files(fs: FileSystem) -> list[str]:
    """Return the paths of all files of staged rows, complete or not."""
    return [f"{ROOT}/{name}" for name in fs.list(ROOT)] if fs.exists(ROOT) else []


def abandoned_files(fs: FileSystem, now: int, seconds_to_live: float) -> list[str]:
    """Return the paths of staged files that an opening at ``now`` removes, in microseconds since 1970: those that are
    not complete, and those of transactions that nobody will commit any more. Raises OSError, UnreadableFileError."""
    parts: dict[str, list[tuple[str, int]]] = {}
    found: list[str] = []
    for path in staged_files(fs):
        read = None
        with suppress(CorruptionError):
            read = read_info(fs, path)
        if read is None:
            found.append(path)
        else:
            parts.setdefault(read[0].transaction, []).append((path, read[0].staged_at))
    for each in parts.values():
        if _is_abandoned(max(staged_at for _, staged_at in each), now, seconds_to_live):
            found += (path for path, _ in each)
    return found


def _number_of(path: str) -> int:
    """Return the number of a staged file; 0 if the file has another name than any that this module gives."""
    name = path.removeprefix(f"{ROOT}/").removesuffix(_SUFFIX)
    return int(name) if name.isdecimal() else 0


def _is_abandoned(staged_at: int, now: int, seconds_to_live: float) -> bool:
    return staged_at + _ABANDONED * seconds_to_live * 1_000_000 < now


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A staged part of a transaction that is complete and durable."""

    fs: FileSystem
    path: str
    info: PartInfo
    rows: int
    size_bytes: int
    known_shapes: frozenset[Shape] | None = None
    """Of the batches; None if another process wrote them."""

    @property
    def number(self) -> int:
        """Of its file: parts that were begun later, in any process, have higher ones."""
        return _number_of(self.path)

    def shapes(self) -> frozenset[Shape]:
        """Return the operations and columns of the batches. Raises as ``batches``, which it may have to read."""
        if self.known_shapes is not None:
            return self.known_shapes
        return frozenset((operation, *batch.schema.names) for operation, batch in self.batches())

    def batches(self) -> Iterator[tuple[Operation, pa.RecordBatch]]:
        """Yield the rows in order. Raises CorruptionError when the file is not what was written."""
        with named("staged rows could not be read"):
            yield from read_rows(self.fs, self.path)


@dataclass(slots=True)
class _Transaction:
    parts: dict[str, StagedPart] = field(default_factory=dict)
    expires: int = 0
    """On the clock that never jumps."""
    owner: Owner = NOBODY
    """Who staged its first part."""
    users: int = 0
    """Streams that stage, and the commit that reads; the transaction is kept while there are any."""
    replaced: list[str] = field(default_factory=list)
    """Files of replaced parts; a commit may read them while there are users."""


class StagingArea:
    """The staged parts of a store. Thread safe."""

    def __init__(self, fs: FileSystem, clock: Clock, seconds_to_live: float, room: Room, first_number: int = 0) -> None:
        """Find parts of earlier runs; ``room`` has the limits on staged bytes. Files get numbers above
        ``first_number``, of its reign.

        Raises:
            UnavailableError, StorageFullError: the directory could not be made or read.
        """
        self._fs = fs
        self._clock = clock
        self.seconds_to_live = seconds_to_live
        self._lock = threads.Lock()
        self._transactions: dict[str, _Transaction] = {}
        self._room = room
        self._sizes: dict[str, tuple[Owner, int]] = {}
        """Whose each file is, and its bytes; nobody's if an earlier process wrote it."""
        self._bytes: Counter[Owner] = Counter()
        """The bytes of all files, by owner."""
        self._last_number = first_number
        with named("the directory of staged rows could not be prepared"):
            if not fs.exists(ROOT):
                fs.make_directory(ROOT)
                fs.sync_directory("")
            for path in staged_files(fs):
                self._find(path)
        self._let_go_of_abandoned()
        self.expire()

    def __len__(self) -> int:
        """Return the number of transactions with staged parts."""
        return len(self._transactions)

    def _find(self, path: str) -> None:
        """Take over a file of an earlier process; remove it unless it is a complete part."""
        number = _number_of(path)
        if reign_of(number) == reign_of(self._last_number):  # else this process, if it is slow, lists the next holder's
            self._last_number = max(self._last_number, number)
        if reign_of(number) > reign_of(self._last_number):
            return  # of the next holder, or of a history that is gone, as in `tablet/open.sweep`
        found = None
        with suppress(CorruptionError):  # a staged part is not a promise to commit
            found = read_info(self._fs, path)
        if found is None:
            self._fs.unlink(path)
            return
        part = StagedPart(self._fs, path, *found, self._fs.size(path))
        self._count(path, part.size_bytes)
        # The time restarts: counted from ``staged_at`` it may have expired although the part has just been completed.
        if old := self._put(part):
            self._remove(old.path)

    def _let_go_of_abandoned(self) -> None:
        today, now = self._clock.physical_microseconds(), self._clock.steady_microseconds()
        for each in self._transactions.values():
            if _is_abandoned(max(part.info.staged_at for part in each.parts.values()), today, self.seconds_to_live):
                each.expires = now

    def write(self, stage: Stage, table_id: int, batches: Iterable[tuple[Operation, pa.RecordBatch]]) -> StagedPart:
        """Write a part, replacing an earlier one of its name. An error leaves nothing behind.

        Raises:
            UnavailableError: too much is staged, or the disk failed.
            StorageFullError: the disk is full, except for its reserve.
        """
        today = self._clock.physical_microseconds()
        info = PartInfo(transaction=stage.transaction, part=stage.part, table_id=table_id, staged_at=today)
        with self._used(stage.transaction):
            path = self._new_path()
            try:
                part = self._write(path, info, batches)
            except BaseException:
                self._remove(path)
                raise
            self._count(path, part.size_bytes)
            with self._lock:
                if old := self._put(part):
                    self._transactions[stage.transaction].replaced.append(old.path)
        return part

    def _write(self, path: str, info: PartInfo, batches: Iterable[tuple[Operation, pa.RecordBatch]]) -> StagedPart:
        with named("rows could not be staged"):
            writer = PartWriter(self._fs, path, info)
            try:
                for operation, batch in batches:
                    self._take(path, batch.nbytes)
                    writer.add(operation, batch)
                writer.finish()
            finally:
                writer.close()
            self._fs.sync_directory(ROOT)
            return StagedPart(self._fs, path, info, writer.rows, self._fs.size(path), frozenset(writer.shapes))

    @contextmanager
    def taken(self, transaction: str, names: Sequence[str]) -> Iterator[list[StagedPart]]:
        """Yield the parts to commit; they are kept while the body runs.

        Raises:
            NotFoundError: one of them is missing.
        """
        with self._used(transaction):
            with self._lock:
                there = self._transactions[transaction].parts
                missing = [name for name in names if name not in there]
                parts = [there[name] for name in names if name in there]
            if missing:
                raise NotFoundError(
                    f"transaction {transaction!r} has no part {missing[0]!r}: it was never staged completely, or it "
                    f"expired after {self.seconds_to_live:,.0f} seconds in which no other part came"
                )
            yield parts

    def parts(self, transaction: str) -> list[StagedPart]:
        """Return the complete parts of a transaction; none if nothing is staged."""
        with self._lock:
            found = self._transactions.get(transaction)
            return list(found.parts.values()) if found else []

    def holds(self, table_id: int) -> bool:
        """Whether rows of a table may be staged; true while any transaction is being staged or committed."""
        with self._lock:
            return any(
                each.users or any(part.info.table_id == table_id for part in each.parts.values())
                for each in self._transactions.values()
            )

    def drop(self, transaction: str) -> None:
        """Discard all parts of a transaction.

        Raises:
            ConflictError: it is being committed, or a part is being staged.
        """
        with self._lock:
            found = self._transactions.get(transaction)
            if found and found.users:
                raise ConflictError(f"transaction {transaction!r} is in use: try again later")
            self._transactions.pop(transaction, None)
        self._remove_all(found)

    def forget(self, transaction: str) -> None:
        """Discard what is left of a committed transaction; parts that are still being staged expire later."""
        with suppress(ConflictError):
            self.drop(transaction)

    def is_due(self) -> bool:
        """Whether ``expire`` would discard anything."""
        now = self._clock.steady_microseconds()
        with self._lock:
            return any(not each.users and each.expires <= now for each in self._transactions.values())

    def expire(self) -> list[str]:
        """Discard the transactions that have not received a part for too long; return their names."""
        now = self._clock.steady_microseconds()
        with self._lock:
            due = {name: each for name, each in self._transactions.items() if not each.users and each.expires <= now}
            for name in due:
                del self._transactions[name]
        for each in due.values():
            self._remove_all(each)
        return list(due)

    @contextmanager
    def _used(self, transaction: str) -> Iterator[None]:
        with self._lock:
            if transaction not in self._transactions:
                self._room.check_count("transactions", [each.owner for each in self._transactions.values()])
                self._transactions[transaction] = _Transaction(owner=owner())
            self._transactions[transaction].users += 1
        try:
            yield
        finally:
            with self._lock:
                found = self._transactions[transaction]
                found.users -= 1
                replaced = [] if found.users else found.replaced
                if not found.users:
                    found.replaced = []
                    if not found.parts:
                        del self._transactions[transaction]
            for path in replaced:
                self._remove(path)

    def _put(self, part: StagedPart) -> StagedPart | None:
        """Add a part and renew its transaction; return the older one of the same name. The numbers tell which one that
        is: the clock may have been set back, and the next process may have another."""
        found = self._transactions.setdefault(part.info.transaction, _Transaction())
        old = found.parts.get(part.info.part)
        if old and old.number > part.number:
            return part
        found.parts[part.info.part] = part
        found.expires = self._clock.steady_microseconds() + int(self.seconds_to_live * 1_000_000)
        return old

    def _take(self, path: str, size: int) -> None:
        """Reserve ``size`` more bytes for a file. Raises as ``write``."""
        who = owner()
        with self._lock:
            self._room.check_staged(size, self._bytes)
            self._sizes[path] = who, self._sizes.get(path, (who, 0))[1] + size
            self._bytes[who] += size
        self._room.check_disk(size, ROOT)

    def _count(self, path: str, size: int) -> None:
        """Replace a file's reserved bytes with its real size."""
        with self._lock:
            who, before = self._sizes.get(path, (NOBODY, 0))
            self._sizes[path] = who, size
            self._bytes[who] += size - before

    def _new_path(self) -> str:
        with self._lock:
            self._last_number += 1
            return f"{ROOT}/{self._last_number}{_SUFFIX}"

    def _remove_all(self, transaction: _Transaction | None) -> None:
        for part in transaction.parts.values() if transaction else ():
            self._remove(part.path)

    def _remove(self, path: str) -> None:
        """Remove a file. If that fails, the next start finds it, and it expires."""
        with self._lock:
            who, size = self._sizes.pop(path, (NOBODY, 0))
            self._bytes[who] -= size
            if not self._bytes[who]:
                del self._bytes[who]
        with suppress(OSError):
            if self._fs.exists(path):
                self._fs.unlink(path)
