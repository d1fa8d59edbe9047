"""Reads the groups of one segment of the log, many at a time: one writer alone makes a group of each record."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...schemas.errors import CorruptionError
from ..kernels.log import log_groups as kernels
from ..vectors.memory.memory import address_of, allocate
from .format import (
    SEGMENT_HEADER_BYTES,
    GroupHeader,
    MalformedError,
    decode_group_header,
    decode_payload,
    seed_at,
    seed_of_segment,
)
from .records import LogRecords, decode_records

_RUN_BYTES = 4 << 20
_GROUPS_AT_ONCE = _RECORDS_AT_ONCE = 1 << 15


@dataclass(frozen=True, slots=True)
class Group:
    """One write of the log: all its records became durable together, or none."""

    path: str
    offset: int
    header: GroupHeader
    records: LogRecords


@dataclass(frozen=True, slots=True, eq=False)
class GroupRun:
    """Consecutive sound groups of one segment of the log: their records, and where each begins."""

    path: str
    seed: int
    records: LogRecords
    offsets: np.ndarray
    """Where in the segment each group begins (int64)."""
    crc: int
    """That of the last one."""
    view: memoryview

    def groups(self) -> Iterator[Group]:
        """Yield the groups."""
        return map(self._group, range(len(self.offsets)))

    def group_with(self, lsn: int) -> Group | None:
        """Return the group with a record, None if it is not of this run."""
        if not self.records.first_lsn <= lsn <= self.records.last_lsn:
            return None
        places = range(len(self.offsets))
        return self._group(bisect_right(places, lsn, key=lambda place: self._header(place).first_lsn) - 1)

    def _group(self, place: int) -> Group:
        header = self._header(place)
        first = header.first_lsn - self.records.first_lsn
        records = self.records.part(first, first + header.record_count)
        return Group(self.path, int(self.offsets[place]), header, records)

    def _header(self, place: int) -> GroupHeader:
        offset = int(self.offsets[place])
        return decode_group_header(self.view, offset, seed_at(self.seed, offset))


class SegmentWalk:
    """Reads the groups of one segment of the log, whose first bytes are ``view``."""

    def __init__(self, view: memoryview, path: str, store_uuid: bytes, number: int) -> None:
        self._view, self._path = view, path
        self._content = np.frombuffer(view, np.uint8)
        self._seed = seed_of_segment(store_uuid, number)
        self.offset = SEGMENT_HEADER_BYTES
        """Where the next group starts."""

    def next_run(self, last_lsn: int, crc: int) -> GroupRun:
        """Return the groups that follow the one with this last lsn and crc: at least one.

        Raises:
            MalformedError: there is none.
            CorruptionError: there is one of another place.
        """
        run = self._read(last_lsn, crc, _RECORDS_AT_ONCE)
        if run is None:
            count = self._check_group(last_lsn, crc)
            run = self._read(last_lsn, crc, count)
            assert run is not None, "the group is sound"
        return run

    def _read(self, last_lsn: int, crc: int, record_count: int) -> GroupRun | None:
        """Return as many groups as are sound and have no more records in all, None if the first is not one of those."""
        view, offset = self._view, self.offset
        state = np.zeros(kernels.STATE_FIELDS, np.int64)
        state[kernels.SEGMENT], state[kernels.SIZE] = address_of(self._content), len(view)
        state[kernels.PLACE], state[kernels.UNTIL] = offset, offset + _RUN_BYTES
        state[kernels.SEED], state[kernels.NEXT_LSN], state[kernels.CRC] = self._seed, last_lsn + 1, crc
        offsets = allocate(_GROUPS_AT_ONCE, np.int64)
        timestamps, addresses, lengths = (allocate(record_count, np.int64) for _ in range(3))
        scratch = allocate(kernels.SCRATCH_BYTES, np.uint8)
        read = int(
            kernels.read_groups(
                address_of(state),
                address_of(offsets),
                _GROUPS_AT_ONCE,
                address_of(timestamps),
                address_of(addresses),
                address_of(lengths),
                record_count,
                address_of(scratch),
            )
        )
        if not read:
            return None
        count = int(state[kernels.RECORDS])
        records = LogRecords(last_lsn + 1, timestamps[:count], addresses[:count], lengths[:count], (view,))
        self.offset = int(state[kernels.PLACE])
        return GroupRun(self._path, self._seed, records, offsets[:read], int(state[kernels.CRC]), view)

    def _check_group(self, last_lsn: int, crc: int) -> int:
        """Return how many records the next group has. Raises as ``next_run``."""
        view, offset, seed = self._view, self.offset, seed_at(self._seed, self.offset)
        header = decode_group_header(view, offset, seed)
        payload = decode_payload(view, offset, header, seed)
        if (header.first_lsn, header.previous_crc) != (last_lsn + 1, crc):
            # Sound, hence not torn: no power failure does this.
            raise CorruptionError(self._path, offset, f"lsn {header.first_lsn} does not follow lsn {last_lsn}")
        try:
            return len(decode_records(payload, header))
        except MalformedError as bad:
            raise CorruptionError(self._path, offset, bad.why) from None
