"""The checksum of each tablet at a backup, computed from the previous backup's and the changes since then.

A change subtracts the hash of the row before it and adds the hash of the row after it. So an increment knows the
table's checksum without reading the table, and every restore can be verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ..splits import TabletLabel, label_of
from .verification import TabletChecksum

if TYPE_CHECKING:
    from .parts import DataFile

_MODULUS = 1 << 64


def tablet_sums(
    tablets: Iterable[TabletLabel], parts: Sequence[DataFile], before: Sequence[TabletChecksum]
) -> list[TabletChecksum] | None:
    """Return the checksums of a backup's tablets after ``parts``, from those of the previous backup; None if a part has
    no sum."""
    rows: dict[TabletLabel, int] = {}
    totals: dict[TabletLabel, int] = {}
    for each in before:
        label = label_of(each.server, each.tablet)
        rows[label], totals[label] = each.rows, int(each.checksum, 16)
    for part in parts:
        if part.checksum is None:
            return None
        rows[part.tablet] = rows.get(part.tablet, 0) + (part.rows if part.rows_added is None else part.rows_added)
        totals[part.tablet] = totals.get(part.tablet, 0) + int(part.checksum, 16)
    return [checksum_of(label, rows.get(label, 0), f"{totals.get(label, 0) % _MODULUS:016x}") for label in tablets]


def checksum_of(label: TabletLabel, rows: int, checksum: str) -> TabletChecksum:
    """Return the checksum of a tablet for the report of a backup or a verification, with the tablet named by its
    label."""
    server, _, number = str(label).rpartition("/")
    return TabletChecksum(tablet=int(number), server=server or None, rows=rows, checksum=checksum)


def total_of(sums: Sequence[TabletChecksum]) -> tuple[int, str]:
    """Return the number of rows and the checksum of all tablets together, for a backup or a verification."""
    total = sum(int(each.checksum, 16) for each in sums) % _MODULUS
    return sum(each.rows for each in sums), f"{total:016x}"
