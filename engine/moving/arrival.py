"""One move whose files are arriving: the files that are here, and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...schemas.errors import ConflictError, NotFoundError, UnavailableError
from ...schemas.store.moving import MoveFile, MoveRound
from .. import threads
from ..manifest import files
from ..manifest.rowset_entry import RowsetEntry

_PATIENCE_SECONDS = 60.0
"""How long a request waits for another one of its move that gets nothing done."""
_LOOKS = 60


@dataclass(slots=True, eq=False)
class Arrival:
    """A move of a tablet to this store, whose files are arriving."""

    round: MoveRound
    tablet: int
    """The tablet's number here."""
    numbers: dict[int, int] = field(default_factory=dict)
    """File numbers here, by their numbers at the source."""
    rowsets: dict[int, RowsetEntry] = field(default_factory=dict)
    """The rowsets of the round, as they are at the source, by the numbers of their files there."""
    is_near: bool = False
    """Whether the bucket copies its files."""
    done: set[str] = field(default_factory=set)
    """The names, at the source, of the files that are here."""
    checked: set[int] = field(default_factory=set)
    """The rowsets, by their numbers here, whose keys belong to the tablet. A bucket takes long to return all keys: so a
    round that comes too late for that makes the next one short."""
    used_at: int = 0
    """As ``now`` gives it."""
    steps: int = 0
    """How much has come, in pieces and in rowsets whose keys were checked."""
    _turn: threads.Lock = field(default_factory=threads.new_lock)

    @contextmanager
    def turn(self, what: str) -> Iterator[None]:
        """Let one file be brought at a time, or all be prepared: a request that comes twice finds the file here, and a
        file of an earlier round does not come after the others of that round were removed.

        Raises:
            UnavailableError: ``what`` would wait for another request that stands still; it may do so for ever.
        """
        looks, steps = 0, self.steps
        while not self._turn.acquire(timeout=_PATIENCE_SECONDS / _LOOKS):
            looks, steps = (looks + 1, steps) if steps == self.steps else (0, self.steps)
            if looks >= _LOOKS:
                raise UnavailableError(
                    f"{what} waits for another request of the move {self.round.move!r}, but that request has made "
                    f"no progress for {_PATIENCE_SECONDS:g} s: move the tablet again; if the new move also fails, "
                    f"check whether the server {self.round.source!r} hangs"
                )
        try:
            yield
        finally:
            self._turn.release()

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a file, and count them."""
        for chunk in chunks:
            self.steps += 1
            yield chunk

    def begin_round(self, asked: MoveRound) -> None:
        rowsets = [RowsetEntry.model_validate(entry) for entry in asked.rowsets]
        self.round = asked
        self.rowsets = {number: each for each in rowsets for number in numbers_of(each)}

    def rowset_of(self, file: MoveFile) -> RowsetEntry:
        """Return the rowset that has a file. Raises NotFoundError or ConflictError if the round has no such file."""
        if file not in self.round.files:
            raise NotFoundError(f"the latest round of the move has no file {file.name!r} with this size and checksum")
        rowset = self.rowsets.get(files.id_of(file.name))
        if rowset is None:
            raise ConflictError(f"the round has the file {file.name!r}, but no rowset that it belongs to")
        return rowset

    def number(self, there: int, new: Callable[[], int]) -> int:
        """Return the number here of a file of the source; ``new`` gives one that was never used."""
        if there not in self.numbers:
            self.numbers[there] = new()
        return self.numbers[there]

    def here(self, entry: dict[str, Any]) -> RowsetEntry:
        """Return a rowset of the source as it is here. Raises ConflictError if a file of it did not come."""
        there = RowsetEntry.model_validate(entry)
        numbers = self.numbers
        try:
            return there.model_copy(
                update={
                    "id": numbers[there.id],
                    "undo": tuple(numbers[each] for each in there.undo),
                    "redo": tuple(numbers[each] for each in there.redo),
                    "columns": {column: numbers[each] for column, each in there.columns.items()},
                    "durable_lsn": 0,
                    "written_as": {
                        numbers[each]: there.written_as.get(each, each) for each in numbers_of(there) if self.is_near
                    },
                }
            )
        except KeyError as error:
            raise ConflictError(f"the round has a rowset, but not the file {error} of that rowset") from None

    def keep(self, rowsets: Iterable[RowsetEntry]) -> None:
        """Forget the files of all other rowsets, which are as they are here: they are being removed."""
        kept = {number for each in rowsets for number in numbers_of(each)}
        self.numbers = {there: here for there, here in self.numbers.items() if here in kept}
        self.done = {name for name in self.done if files.id_of(name) in self.numbers}


def numbers_of(rowset: RowsetEntry) -> set[int]:
    """Return the numbers of the files of a rowset that is moving."""
    return {rowset.id, *rowset.undo, *rowset.redo, *rowset.columns.values()}
