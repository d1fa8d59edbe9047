"""The parts of a table that tasks read on their own, all at one snapshot."""

from __future__ import annotations

from ...schemas.errors import InvalidArgumentError
from ...schemas.scan import ScanSpec
from ...schemas.service import StoreService
from ...schemas.timestamp import parse_moment

SPLIT_BYTES = 64 * 1024 * 1024
"""Of a table's data: about a second of work, and a file of some ten megabytes."""


def snapshot_of(service: StoreService, as_of: int | str | None) -> int:
    """Return the snapshot that a job reads at: ``as_of``, or now."""
    return service.now() if as_of is None else parse_moment(as_of)


def split_specs(service: StoreService, spec: ScanSpec, split_bytes: int | None = SPLIT_BYTES) -> list[ScanSpec]:
    """Return the scans that together read what ``spec`` reads, each of one tablet or a part of it.

    Raises:
        SnapshotTooOldError: the table has dropped the history that it needs.
    """
    if split_bytes is not None and split_bytes < 1:
        raise InvalidArgumentError(f"split_bytes is a positive number of bytes, not {split_bytes}")
    plan = service.plan(spec.model_copy(update={"split_bytes": split_bytes}).checked())
    return [
        spec.model_copy(update={"tablet": each.tablet, "key_lower": each.key_lower, "key_upper": each.key_upper})
        for each in plan.splits
    ]


def tablets_of(service: StoreService, table: str) -> list[int]:
    """Return the ids of a table's tablets; none is ever used again."""
    return sorted(tablet.tablet for tablet in service.table_stats(table).tablets)
