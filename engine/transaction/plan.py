"""Plan: the work of a transaction, for one version of each of its tables, prepared before any lock is taken."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from ...schemas.errors import InvalidArgumentError
from ...schemas.limits.limits import Limits
from ...schemas.rows.write import ROW_ERRORS_MAX
from ..table.auto_increment import NO_IDS
from ..table.checked_batch import row_bytes
from ..table.direct_load import DirectLoad
from ..table.routed_batch import RoutedBatch
from ..table.table import Table
from ..table.table_version import TableVersion
from ..tablet.attach import StagedRowSet
from ..tablet.tablet import Tablet
from .loader import Loader
from .staging.area import StagedPart
from .tablet_part import CHUNK_BYTES, Refusals, StagedChunk, TabletPart, chunks, keys_of, pieces, routed
from .truncation import key_bytes_of

Made = TypeVar("Made")

_ROWSET_BYTES = 64 << 20
"""A loader collects a tablet's new rows up to this size and writes them as one rowset."""
_MANY_ROWS = 1 << 19
"""With more rows, threads pay."""
_CHUNKS_AHEAD = 3
"""The most chunks that threads work on or that wait; each takes the bytes of its rows twice."""
_HELD_BYTES = CHUNK_BYTES
"""Up to this size all rows of a table are held until it is known which keys they have more than once. Above it, as
memory may not hold them all, they are placed while they are read, as if each key came once; if one comes again, that
is undone, and all keys are read before the rows."""
_NO_HASHES = np.empty(0, np.uint64)


@dataclass(slots=True, eq=False)
class TabletWork:
    """The work of a transaction in one tablet."""

    tablet: Tablet
    single: list[TabletPart] = field(default_factory=list)
    """Rows whose keys occur once in the transaction, in no order."""
    repeated: list[TabletPart] = field(default_factory=list)
    """The other rows, in order."""
    loader: Loader | None = None

    @property
    def staged(self) -> list[StagedRowSet]:
        """The rowsets to attach."""
        return self.loader.staged if self.loader else []


@dataclass(slots=True, eq=False)
class TableWork:
    """The work of a transaction in one table. Truncated tables have work for all of their tablets."""

    table: Table
    version: TableVersion
    truncated: bool
    parts: list[StagedPart] = field(default_factory=list)
    tablets: dict[int, TabletWork] = field(default_factory=dict)
    complete: frozenset[int] = frozenset()
    """The numbers of tablets that have this transaction already, and get nothing."""
    brought: np.ndarray = field(default_factory=lambda: NO_IDS)
    """The ids that upserts bring to a table that numbers its rows, ascending; those that were assigned before are left
    out."""
    first_id: int | None = None
    """The least id that the store gave to its rows; None: it gave none."""

    def of(self, tablet: Tablet) -> TabletWork:
        """Return the work of a tablet."""
        return self.tablets.setdefault(tablet.tablet_id, TabletWork(tablet))

    def give_up(self) -> None:
        """Remove the rowsets that were not attached."""
        for each in self.tablets.values():
            if each.loader:
                each.loader.give_up()
                each.loader = None

    @property
    def is_current(self) -> bool:
        """Whether the table still has the plan's version, and ids that it gave are free; the answer holds under the
        write locks."""
        return self.table.version is self.version and self.table.auto_increment.are_free(self.first_id)

    @property
    def last_brought(self) -> int:
        """The greatest id that upserts bring; 0: none that was not assigned before."""
        return int(self.brought[-1]) if len(self.brought) else 0

    def gave(self, first_id: int | None) -> None:
        """Note the least of the ids that were given to some rows."""
        if first_id is not None:
            self.first_id = first_id if self.first_id is None else min(self.first_id, first_id)


class Plan:
    """The work of a transaction in all tables. Call ``close`` at the end in any case."""

    def __init__(
        self,
        works: Sequence[TableWork],
        limits: Limits,
        now: int,
        direct_load: DirectLoad | None,
        most: int,
        pool: Executor,
        threads: int,
    ) -> None:
        """Plan ``works`` at the moment ``now`` and fill in their pieces. Rows of ``most`` bytes may pass through
        memory. ``pool`` writes new rows with its ``threads``.

        Raises:
            InvalidArgumentError: a part does not fit its table, or too many rows pass through memory.
            CorruptionError: a staged file is not what was written.
            StorageFullError, UnavailableError: rows could not be written.
        """
        self.works = works
        self.refusals = Refusals(ROW_ERRORS_MAX)
        self.rows = sum(part.rows for work in works for part in work.parts)
        self.held_bytes = 0
        """Bytes of rows, and of keys to be deleted, that pass through memory."""
        self._limits = limits
        self._now = now
        self._most = most
        self._direct_load = direct_load
        self._pool = pool
        self._threads = threads
        self._loaders: list[Loader] = []
        try:
            for work in works:
                self._fill(work)
        except BaseException:
            self.close()
            raise

    @property
    def tablets(self) -> list[Tablet]:
        """The tablets of all tables."""
        return [each.tablet for work in self.works for each in work.tablets.values()]

    @property
    def staged(self) -> list[StagedRowSet]:
        """The rowsets to attach."""
        return [one for work in self.works for each in work.tablets.values() for one in each.staged]

    @property
    def is_done(self) -> bool:
        """Whether all tablets that the transaction writes to have it already."""
        return any(work.complete for work in self.works) and all(each.elsewhere is not None for each in self.tablets)

    def close(self) -> None:
        """Remove the rowsets that were not attached."""
        for work in self.works:
            work.give_up()

    def _fill(self, work: TableWork) -> None:
        self._begin(work)
        if _fits_in_memory(work):
            held = list(self._pieces(work, self.refusals))
            self._place_all(work, held, _repeated(np.concatenate([_NO_HASHES, *(piece.hashes for piece in held)])))
        elif not self._has_placed_distinct(work):
            repeated = _repeated(self._see_keys(work))
            with closing(self._pieces(work, self.refusals)) as found:
                self._place_all(work, found, repeated)
        for each in work.tablets.values():
            room = max(self._most // 2 - self.held_bytes, 0)
            for piece in each.loader.finish(room) if each.loader else []:
                self._keep(each.single, piece)
        for loader in [each.loader for each in work.tablets.values() if each.loader]:
            loader.settle()
            loader.watch()

    def _begin(self, work: TableWork) -> None:
        for tablet in work.version.tablets if work.truncated else ():
            if tablet.tablet_id in work.complete:
                continue
            tablet.check_sound()
            work.of(tablet)
            self._hold(key_bytes_of(tablet))

    def _has_placed_distinct(self, work: TableWork) -> bool:
        """Place the rows as if each key came once; if one comes again, undo that and return False. A table that numbers
        its rows must first see the ids in all parts."""
        if work.version.schema.auto_incrementing:
            return False
        refusals, held_bytes, loaders = Refusals(ROW_ERRORS_MAX), self.held_bytes, len(self._loaders)
        hashes, rows, compared = np.empty(sum(part.rows for part in work.parts), np.uint64), 0, 0
        with closing(self._pieces(work, refusals)) as found:
            for piece in found:
                hashes[rows : rows + len(piece)] = piece.hashes
                rows += len(piece)
                if rows >= 2 * compared:  # so little is undone if many keys come again
                    if len(_repeated(hashes[:rows])):
                        break
                    compared = rows
                self._place(work, piece, _NO_HASHES)
            else:
                if not len(_repeated(hashes[:rows])):
                    self.refusals.extend(refusals)
                    return True
        work.give_up()
        work.tablets = {tablet_id: TabletWork(each.tablet) for tablet_id, each in work.tablets.items()}
        del self._loaders[loaders:]
        self.held_bytes = held_bytes
        return False

    def _pieces(self, work: TableWork, refusals: Refusals) -> Generator[TabletPart]:
        def cut(chunk: StagedChunk) -> RoutedBatch:
            return routed(chunk, work.table, work.version, self._limits, self._now, work.brought)

        with closing(self._each(work, cut)) as each:
            for chunk, parts in each:
                work.gave(parts.first_id)
                for piece in pieces(chunk, parts, work.table, refusals):
                    if piece.tablet.tablet_id not in work.complete:
                        yield piece

    def _see_keys(self, work: TableWork) -> np.ndarray:
        """Return the hashes of all keys, and note the ids that upserts bring."""
        with closing(self._each(work, lambda chunk: keys_of(chunk, work.table, work.version, self._limits))) as each:
            seen = [found for _, found in each]
        work.brought = np.unique(np.concatenate([NO_IDS, *(ids for _, ids in seen)]))
        return np.concatenate([_NO_HASHES, *(hashes for hashes, _ in seen)])

    def _each(self, work: TableWork, make: Callable[[StagedChunk], Made]) -> Generator[tuple[StagedChunk, Made]]:
        """Yield the chunks in order, each with its result of ``make``. Threads prepare the next ones, if that pays and
        order does not matter: rows are numbered in their order."""
        read = (chunk for part in work.parts for chunk in chunks(part, work.version, self._limits))
        if self.rows <= _MANY_ROWS or work.version.schema.auto_incrementing:
            yield from ((chunk, make(chunk)) for chunk in read)
            return
        coming: deque[tuple[StagedChunk, Future[Made]]] = deque()
        try:
            for chunk in read:
                coming.append((chunk, self._pool.submit(make, chunk)))
                if len(coming) > min(self._threads, _CHUNKS_AHEAD):
                    first, made = coming.popleft()
                    yield first, made.result()
            while coming:
                first, made = coming.popleft()
                yield first, made.result()
        finally:
            for _, made in coming:
                made.cancel()
                with suppress(CancelledError):
                    made.exception()

    def _place_all(self, work: TableWork, found: Iterable[TabletPart], repeated: np.ndarray) -> None:
        for piece in found:
            self._place(work, piece, repeated)

    def _place(self, work: TableWork, piece: TabletPart, repeated: np.ndarray) -> None:
        each = work.of(piece.tablet)
        is_repeated = _are_in(piece.hashes, repeated)
        if is_repeated.any():
            self._keep(each.repeated, piece.chosen(is_repeated))
        if is_repeated.all():
            return
        single: TabletPart | None = piece.chosen(~is_repeated)
        if piece.makes_rows and (loader := self._loader(work, each)):
            single = self._load(loader, single)
        if single:
            self._keep(each.single, single)

    def _loader(self, work: TableWork, each: TabletWork) -> Loader | None:
        """Return the loader of a tablet's new rows; None if there are too few rows in all."""
        size = sum(part.size_bytes for part in work.parts)
        if self._direct_load is None or size < self._direct_load.sorted_bytes:
            return None
        if each.loader is None:
            share = max(self._most // len(work.version.tablets), self._direct_load.sorted_bytes)
            each.loader = Loader(self._direct_load, work.version, each.tablet, min(share, _ROWSET_BYTES), self._pool)
            self._loaders.append(each.loader)
        return each.loader

    def _load(self, loader: Loader, piece: TabletPart) -> TabletPart | None:
        """Give new rows to the loader of a tablet, and return the others. All loaders together hold no more than may
        pass through memory, as there may be many."""
        others = loader.add(piece)
        while sum(each.held_bytes for each in self._loaders) > self._most:
            busy = [each for each in self._loaders if each.is_writing]
            if len(busy) < self._threads and any(each.waiting_bytes for each in self._loaders):
                max(self._loaders, key=lambda each: each.waiting_bytes).write()
            elif busy:
                busy[0].settle()
        return others

    def _keep(self, place: list[TabletPart], piece: TabletPart) -> None:
        self._hold(piece.rows.nbytes)
        place.append(piece.alone())

    def _hold(self, size: int) -> None:
        self.held_bytes += size
        if self.held_bytes > self._most:
            raise InvalidArgumentError(
                "the transaction is too large: its changes of existing rows, repeated keys and keys of truncated "
                f"tables take more than {self._most:,} bytes of memory (new rows do not count): commit them in "
                "several transactions, or raise transaction_bytes of the store"
            )


def _fits_in_memory(work: TableWork) -> bool:
    """Whether memory can hold all rows until all keys are known. A table that numbers its rows must first see the ids
    in all parts."""
    least = row_bytes(work.version.schema.columns)
    size = sum(part.size_bytes + part.rows * least for part in work.parts)
    return size <= _HELD_BYTES and not work.version.schema.auto_incrementing


def _repeated(hashes: np.ndarray) -> np.ndarray:
    """Sort ``hashes`` in place; return, ascending, those that occur more than once: keys of the others are distinct."""
    hashes.sort()
    return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])


def _are_in(hashes: np.ndarray, ascending: np.ndarray) -> np.ndarray:
    if not len(ascending):
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
    return ascending[places] == hashes
