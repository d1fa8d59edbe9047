"""Parts: what many records of the log hold, as a table with a line for each change, note and attachment."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...schemas.errors import CorruptionError
from ..kernels.log import log_parts as kernels
from ..vectors.memory.memory import address_of, allocate
from .change import Attachment, ChangeKind
from .log_note import Note, NoteKind

_JSON_KINDS = [*NoteKind, ChangeKind.ATTACH]


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The parts of log records from ``first_lsn`` on, in the order of the log."""

    first_lsn: int
    table: np.ndarray
    """int64, a line for each part: see `log_parts.PART_FIELDS`."""
    memory: object
    """What the payloads are in, which lives as long as this."""

    def __len__(self) -> int:
        return len(self.table)

    @property
    def records(self) -> np.ndarray:
        """The place of each part's record among the records."""
        return self.table[:, 0]

    @property
    def owners(self) -> np.ndarray:
        """The id of the tablet, or of the table in a note."""
        return self.table[:, 1]

    @property
    def kinds(self) -> np.ndarray:
        return self.table[:, 2] >> 8

    @property
    def forms(self) -> np.ndarray:
        return self.table[:, 2] & 0xFF

    @property
    def bodies(self) -> np.ndarray:
        """The address of what follows each part's header."""
        return self.table[:, 3]

    @property
    def sizes(self) -> np.ndarray:
        """The bytes at that address."""
        return self.table[:, 4]

    def taken(self, chosen: np.ndarray) -> Parts:
        """Return some of the parts, by their places or by flags."""
        return Parts(self.first_lsn, np.ascontiguousarray(self.table[chosen]), self.memory)

    @property
    def changes(self) -> Parts:
        """The changes among them."""
        is_json = np.isin(self.kinds, _JSON_KINDS)
        return self.taken(~is_json) if is_json.any() else self

    def of_kind(self, kind: int) -> Parts:
        """Return the parts of one kind."""
        return self.taken(self.kinds == kind)

    def lsn_of(self, part: int) -> int:
        """Return the log position of a part."""
        return self.first_lsn + int(self.records[part])

    def body(self, part: int) -> bytes:
        """Return a copy of a part's body."""
        return self.bytes_at(int(self.bodies[part]), int(self.sizes[part]))

    def bytes_at(self, address: int, size: int) -> bytes:
        """Return a copy of bytes inside a part's body."""
        return ctypes.string_at(address, size)

    def attachments(self) -> Iterator[tuple[int, Attachment]]:
        """Yield the attachments, each with the place of its record.

        Raises:
            CorruptionError: one is not what was logged.
        """
        for part in np.flatnonzero(self.kinds == ChangeKind.ATTACH).tolist():
            try:
                attachment = Attachment(tablet_id=int(self.owners[part]), **json.loads(self.body(part)))
            except (ValueError, TypeError) as error:
                raise CorruptionError("wal", 0, f"log record {self.lsn_of(part)}: {error}") from error
            yield int(self.records[part]), attachment

    def notes(self) -> Iterator[tuple[int, Note]]:
        """Yield the notes, each with the place of its record."""
        for part in np.flatnonzero(np.isin(self.kinds, list(NoteKind))).tolist():
            note = Note(int(self.owners[part]), NoteKind(int(self.kinds[part])), self.body(part))
            yield int(self.records[part]), note


def find_parts(first_lsn: int, addresses: np.ndarray, lengths: np.ndarray, memory: object) -> Parts:
    """Return the parts of log records whose payloads are at ``addresses`` (int64) in ``memory`` and have ``lengths``.

    Raises:
        CorruptionError: a payload is not what was logged.
    """
    records = address_of(addresses), address_of(lengths), len(addresses)
    count = int(kernels.count_parts(*records))
    if count < 0:
        record, is_longer = divmod(-1 - count, 2)
        why = ": a part extends past the end of its record" if is_longer else ": it ends in the middle of a header"
        raise CorruptionError("wal", 0, f"log record {first_lsn + record}{why}")
    table = allocate(count * kernels.PART_FIELDS, np.int64).reshape(count, kernels.PART_FIELDS)
    kernels.find_parts(*records, address_of(table))
    return Parts(first_lsn, table, memory)


def parts_of_payload(payload: memoryview, lsn: int) -> Parts:
    """Return the parts of one log record. Raises as ``find_parts`` does."""
    content = np.frombuffer(payload, np.uint8)
    return find_parts(lsn, np.array([address_of(content)]), np.array([len(content)]), content)
