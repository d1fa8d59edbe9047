"""Splits a table for tasks: the parts have one snapshot and together cover all keys.

A part names the server that planned it and its tablet's partition, not only the tablet's number: every server numbers
its own tablets, and a tablet that moves gets a new number.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pydantic import BaseModel, field_serializer

from ...schemas.cells.timestamp import Moment, read_moment
from ...schemas.errors import ConflictError, InvalidArgumentError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanSplit
from ...schemas.store.description import TabletMap
from ...schemas.table.partition_schema import PartitionSchema, TabletPartition

SPLIT_BYTES = 64 * 1024 * 1024
"""Table data of one part: about a second of work, and a file of some ten megabytes."""
_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between plans, while tablets move or the table is altered."""

TabletLabel = int | str
"""The name of a tablet: its number, or ``server/number`` if several servers share the table. Labels are never reused: a
tablet that was moved, split or created again has a new one."""


class TableSplit(BaseModel, frozen=True):
    """A split of a job: a part of a table scan, read by one task."""

    scan: ScanSpec
    """Includes the tablet, its partition, and the key range within it."""
    server: str | None = None
    """The server that planned it and numbered the tablet, if several share the table."""

    @field_serializer("scan")
    def _without_nulls(self, scan: ScanSpec) -> dict[str, Any]:
        return scan.model_dump(mode="json", exclude_none=True)

    @property
    def label(self) -> TabletLabel:
        """Its tablet."""
        return label_of(self.server, self.scan.tablet or 0)


@dataclass(frozen=True)
class TableSplits:
    """The splits of a job: a table scan in parts, one for each task."""

    splits: list[TableSplit]
    """The parts that hold rows."""
    tablets: dict[TabletLabel, TabletPartition]
    """All tablets of the table, with their partitions."""
    schema_version: int

    def of(self, labels: Iterable[TabletLabel]) -> list[TableSplit]:
        """Return the parts of some tablets."""
        wanted = set(labels)
        return [split for split in self.splits if split.label in wanted]


def label_of(server: str | None, tablet: int) -> TabletLabel:
    """Return the label by which jobs call a server's tablet."""
    return tablet if server is None else f"{server}/{tablet}"


def in_order(labels: Iterable[TabletLabel]) -> list[TabletLabel]:
    """Return the labels of tablets in the order in which jobs report them: by server, then by number."""

    def place(label: TabletLabel) -> tuple[str, int]:
        server, _, number = str(label).rpartition("/")
        return server, int(number)

    return sorted(labels, key=place)


def snapshot_of(service: StoreService, as_of: Moment | None) -> int:
    """Return the snapshot that a job reads at: ``as_of``, or now."""
    return service.now() if as_of is None else read_moment(as_of)


def split_table(service: StoreService, spec: ScanSpec, split_bytes: int | None = SPLIT_BYTES) -> TableSplits:
    """Split the scan of a whole table for the tasks of a job, pinned to a snapshot; check that the parts cover every
    key exactly once.

    Raises:
        SnapshotTooOldError: the snapshot is older than the table's history.
        ConflictError: the table is altered, or its tablets move, faster than it can be planned.
    """
    if split_bytes is not None and split_bytes < 1:
        raise InvalidArgumentError(f"split_bytes must be a positive number of bytes, not {split_bytes}")
    asked = spec.model_copy(update={"split_bytes": split_bytes, "all_parts": True}).checked()
    for pause in (*_PAUSES, None):
        plan = service.plan(asked)
        table = service.tablets(spec.table)
        try:
            check_cover(spec.table, plan.splits, plan.schema_version, table)
        except ConflictError:
            if pause is None:
                raise
            time.sleep(pause)
            continue
        return TableSplits(
            [TableSplit(scan=each.ticket(spec), server=each.server) for each in plan.splits if each.rows],
            {label_of(each.server, each.tablet): each.partition or TabletPartition() for each in plan.splits},
            plan.schema_version,
        )
    raise AssertionError("the last plan returns or raises")


def check_cover(name: str, splits: Iterable[ScanSplit], schema_version: int, table: TabletMap) -> None:
    """Check that the splits of a job cover every key of a table, in all buckets and ranges, exactly once.

    Raises:
        ConflictError: they do not; the message names a tablet that is missing or present twice.
    """
    again = "a tablet has moved or the table was altered meanwhile; run the job again"
    if schema_version != table.schema_version:
        raise ConflictError(f"table {name!r} was altered during planning: {again}")
    parts: dict[TabletPartition, list[ScanSplit]] = {each: [] for each in table.partitions.tablets()}
    for split in splits:
        if split.partition not in parts:
            raise ConflictError(
                f"tablet {_called(split)} of table {name!r} does not match a partition of the table: {again}"
            )
        parts[split.partition].append(split)
    for partition, found in parts.items():
        tablets = list(dict.fromkeys(map(_called, found)))
        if not tablets:
            raise ConflictError(f"no server has {_shown(partition, table.partitions)} of table {name!r}: {again}")
        if len(tablets) > 1:
            which = _shown(partition, table.partitions)
            raise ConflictError(f"{' and '.join(tablets)} both hold {which} of table {name!r}: {again}")
        _check_keys(name, found)


def _check_keys(name: str, splits: list[ScanSplit]) -> None:
    """Check that the parts of one tablet are contiguous from its first key to its last."""
    ordered = sorted(splits, key=lambda each: bytes.fromhex(each.key_lower or ""))
    is_whole = ordered[0].key_lower is None and ordered[-1].key_upper is None
    if not is_whole or any(
        before.key_upper is None or before.key_upper != after.key_lower for before, after in pairwise(ordered)
    ):
        raise ConflictError(
            f"the parts of tablet {_called(ordered[0])} of table {name!r} overlap or have gaps: please report this bug"
        )


def _called(split: ScanSplit) -> str:
    return str(label_of(split.server, split.tablet))


def _shown(partition: TabletPartition, table: PartitionSchema) -> str:
    bounds = f"the range [{partition.lower or 'unbounded'}, {partition.upper or 'unbounded'})"
    return f"{bounds}, buckets {partition.buckets}" if table.hash or partition.buckets else bounds


def tablets_of(service: StoreService, table: str) -> list[TabletLabel]:
    """Return the labels by which jobs call a table's tablets."""
    return in_order(label_of(place.server, place.tablet) for place in service.tablets(table).tablets)


def count_rows(service: StoreService, spec: ScanSpec) -> int:
    """Return the number of rows that a job is to read in a pinned scan; the store counts them without reading cells."""
    counting = ScanSpec(table=spec.table, where=spec.where, as_of=spec.as_of, aggregate={"rows": ("*", "count")})
    return sum(batch.column(0)[0].as_py() for batch in service.scan(counting).batches)


def check_count(what: str, rows: int, expected: int | None) -> None:
    """Compare the number of rows that a job read with the number at its start, if known.

    Raises:
        ConflictError: they differ.
    """
    if expected is not None and rows != expected:
        raise ConflictError(
            f"{what} had {expected:,} rows when the job began, and {rows:,} were read: a range of the table was "
            "dropped or added again meanwhile; run the job again"
        )
