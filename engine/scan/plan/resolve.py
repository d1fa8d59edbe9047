"""Resolves a scan into what the tablets read: columns by id, a bound filter, a key range, one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any

import pyarrow as pa

from ....schemas.cells.timestamp import microseconds_of
from ....schemas.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
    WrongServerError,
)
from ....schemas.limits.budget import BudgetShare
from ....schemas.limits.limits import Limits
from ....schemas.protocol.service import Marked
from ....schemas.rows.prune_count import PruneCount
from ....schemas.rows.scan import ScanSpec
from ....schemas.store.description import ScanSplit
from ....schemas.table.column import ColumnSchema
from ....schemas.table.partition_schema import TabletPartition, sum_of
from ....schemas.table.table import TableSchema
from ...aggregate.merge import Merger
from ...aggregate.plan import AggregatePlan
from ...filter.compiled import FilterCache, described
from ...filter.prune import ALL_KEYS, KeyRange
from ...partition.prune import LevelCount
from ...partition.prune import prune as prune_tablets
from ...rowset.rowset import RowSet
from ...table.point_plan import PointPlan
from ...table.table import Table
from ...table.table_version import TableVersion, check_here
from ...tablet.tablet import Tablet
from ...tablet.version import Version
from ..read.chunk import ChangeRange, ScanRequest
from ..read.marked import scan_marked
from ..read.ordered import scan_ordered
from ..read.over_tablets import aggregate, scan_unordered
from ..read.split import Split, split

_SHORT_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class Wanted:
    """The tablets that a scan reads, in ascending id, and how many each partitioning level left."""

    tablets: list[Tablet]
    levels: list[LevelCount]
    everywhere: str | None = None
    """Checksum of these and of the tablets on other servers that the scan reads; None if there are no others."""

    @property
    def sums(self) -> tuple[str, str]:
        """Checksums of the tablets, and of all that the scan reads, as in ``ScanPlan``."""
        here = sum_of(tablet.partition for tablet in self.tablets)
        return here, self.everywhere or here


def resolve(
    spec: ScanSpec,
    version: TableVersion,
    snapshot: int,
    changes: ChangeRange | None,
    filters: FilterCache,
    chunk_bytes: int,
    is_far: bool = False,
) -> ScanRequest:
    """Resolve a scan against a version of its table.

    Raises:
        InvalidArgumentError, NotFoundError: a column or filter is invalid.
    """
    spec.checked()
    schema = version.schema
    now = microseconds_of(snapshot if spec.now is None else spec.now)
    where = filters.compiled(spec.where, schema, version.encoder, now)
    bound = where.bound
    plan = None if spec.aggregate is None else AggregatePlan.of(spec.aggregate, spec.group_by or (), schema)
    part = _part(spec)
    columns = _columns(spec, schema) if plan is None else plan.columns
    return ScanRequest(
        columns=columns,
        where=None if bound.is_trivially_true else bound,
        filter_columns=tuple(schema.by_id[column_id] for column_id in bound.column_ids),
        keys=where.keys if part is None else where.keys.intersection(part),
        snapshot=snapshot,
        chunk_bytes=chunk_bytes,
        changes=changes,
        limit=None if spec.limit is None else spec.limit + spec.offset,
        inverse=where.inverse,
        points=where.points,
        filter_tree=where.tree,
        now=now,
        few=where.few,
        aggregate=plan,
        is_split=part is not None,
        is_far=is_far,
        row_columns=version.plans[PointPlan].columns_of(columns) if plan is None and columns else None,
    )


def _columns(spec: ScanSpec, schema: TableSchema) -> tuple[ColumnSchema, ...]:
    names = schema.arrow.names if spec.columns is None else spec.columns
    return tuple(schema.column(name) for name in names)


def digest(table: Table, request: ScanRequest) -> str:
    """Return a digest of the columns, equal for two scans with the same columns, names and types."""
    columns = [(column.id, column.name, column.type, column.nullable) for column in request.columns_read]
    return blake2s(repr((table.table_id, columns)).encode(), digest_size=8).hexdigest()


def resolve_ticket(
    spec: ScanSpec,
    table: Table,
    version: TableVersion,
    snapshot: int,
    changes: ChangeRange | None,
    filters: FilterCache,
    chunk_bytes: int,
    is_far: bool = False,
) -> ScanRequest:
    """Resolve a scan as ``resolve`` does; a planned one must still have the columns of its plan.

    Raises:
        ConflictError: it has others.
        InvalidArgumentError, NotFoundError: a column or filter is invalid.
    """
    why = (
        f"table {table.name!r} was altered or created again after the scan was planned, and its columns differ "
        f"(schema version {version.schema.version} now): plan the scan again, with GetFlightInfo"
    )
    try:
        request = resolve(spec, version, snapshot, changes, filters, chunk_bytes, is_far)
    except (InvalidArgumentError, NotFoundError) as error:
        if spec.planned is not None:
            raise ConflictError(why) from error
        raise
    if spec.planned not in (None, digest(table, request)):
        raise ConflictError(why)
    return request


def _part(spec: ScanSpec) -> KeyRange | None:
    """Return the key range of a ticket; None for all keys."""
    if spec.key_lower is None and spec.key_upper is None:
        return None
    lower, upper = (None if end is None else bytes.fromhex(end) for end in (spec.key_lower, spec.key_upper))
    return KeyRange(lower, upper)


def wanted_tablets(spec: ScanSpec, table: Table, version: TableVersion, request: ScanRequest) -> Wanted:
    """Return the tablets that a scan reads.

    Raises:
        NotFoundError: the tablet of a ticket, or a part of it, is gone.
        WrongServerError: a tablet is on another server and the scan does not ask only for those ``here``, or the
            tablets ``here`` are not those of the scan's plan.
        CorruptionError: a tablet is in quarantine.
    """
    if spec.tablets_here is not None and spec.tablets_here != version.tablets_here:
        raise WrongServerError("tablets have moved between servers meanwhile; plan the scan again")
    wanted = _wanted(spec, table, version, request)
    if spec.here and spec.tablet is None and version.elsewhere is not None:
        here = [tablet for tablet in wanted.tablets if tablet.elsewhere is None]
        wanted = Wanted(here, wanted.levels, sum_of(tablet.partition for tablet in wanted.tablets))
    for tablet in wanted.tablets:
        check_here(tablet)
    return wanted


def _wanted(spec: ScanSpec, table: Table, version: TableVersion, request: ScanRequest) -> Wanted:
    if spec.tablet is not None:
        return Wanted(_descendants(spec.tablet, table, version), [])
    if spec.partition is not None:
        return Wanted(_within(spec.partition, table, version), [])
    if request.where is None:
        return Wanted(list(version.tablets), [])
    partitions = [tablet.partition for tablet in version.tablets]
    pruned = prune_tablets(request.where, version.partitions, version.schema, partitions)
    return Wanted([version.tablets[number] for number in pruned.left], pruned.levels)


def _descendants(tablet_id: int, table: Table, version: TableVersion) -> list[Tablet]:
    """Return the tablet, or those that it was split into.

    Each split makes two halves, so after n splits a tablet is one part in 2**n of the original.
    """
    if known := [tablet for tablet in version.tablets if tablet_id in tablet.aliases]:
        return known
    lines = [(tablet, (*tablet.ancestors, tablet.tablet_id)) for tablet in version.tablets]
    found = [(tablet, len(line) - 1 - line.index(tablet_id)) for tablet, line in lines if tablet_id in line]
    if not found:
        raise NotFoundError(
            f"table {table.name!r} has no tablet {tablet_id}: its range was dropped; plan the scan again"
        )
    if sum(2.0**-divisions for _, divisions in found) < 1:
        raise NotFoundError(
            f"tablet {tablet_id} of table {table.name!r} was split after the scan was planned, and the range of a "
            "part of it was dropped; plan the scan again"
        )
    return [tablet for tablet, _ in found]


def _within(partition: TabletPartition, table: Table, version: TableVersion) -> list[Tablet]:
    """Return the tablets that cover a partition, which may have been split, in key order."""
    begins = {each.partition.lower: each for each in version.tablets if each.partition.buckets == partition.buckets}
    found: list[Tablet] = []
    lower = partition.lower
    while (tablet := begins.get(lower)) and len(found) < len(begins):
        found.append(tablet)
        if tablet.partition.upper == partition.upper:
            return found
        lower = tablet.partition.upper
    raise NotFoundError(
        f"table {table.name!r} no longer has the tablets that the scan was planned for: its range was dropped; plan "
        "the scan again"
    )


def unmarked(marked: Iterator[Marked]) -> Iterator[pa.RecordBatch]:
    """Yield only the batches."""
    for batch, _ in marked:
        if batch is not None:
            yield batch


def run(
    spec: ScanSpec,
    version: TableVersion,
    request: ScanRequest,
    tablets: list[Tablet],
    versions: list[Version],
    pool: Executor,
    ahead: int,
    limits: Limits,
    memory: BudgetShare,
) -> Iterator[Marked]:
    """Return the batches of a scan of tablets in these versions, which come from ``pinned``; with ``marks`` if the scan
    asks for them and does not aggregate. It takes of ``memory``, and gives nothing back."""
    if request.aggregate:
        read = [] if _is_empty(spec, request) else versions
        merger = Merger(request.aggregate, limits.aggregate_bytes, memory, may_repeat=spec.partial)
        return _aggregated(read, request, request.aggregate, pool, ahead, merger)
    if _is_empty(spec, request):
        return iter(())
    reach = 0 if spec.limit is not None else ahead
    while reach and not memory.take_spare(reach * request.chunk_bytes):  # they are kept for who does not take them
        reach //= 2
    if spec.ordered:
        marked = (
            item
            for group in _in_key_order(tablets, versions, version)
            for item in scan_ordered(group, request, version.schema.key, version.encoder, pool, reach)
        )
    elif spec.marks and not _is_short(spec):
        rowsets = [rowset for tablet_version in versions for rowset in tablet_version.rowsets()]
        marked = scan_marked(rowsets, request, pool, reach)
    else:
        marked = (Marked(batch, None) for batch in scan_unordered(versions, request, pool, reach))
    marked = _skipped(marked, spec.offset) if spec.offset else marked
    return marked if spec.limit is None else _limited(marked, spec.limit)


def _is_empty(spec: ScanSpec, request: ScanRequest) -> bool:
    return spec.limit == 0 or (request.where is not None and request.where.is_trivially_false)


def _is_short(spec: ScanSpec) -> bool:
    """Whether the rows are few enough for a reader to wait until all have arrived."""
    return spec.limit is not None and spec.limit <= _SHORT_ROWS


def _aggregated(
    versions: list[Version], request: ScanRequest, plan: AggregatePlan, pool: Executor, ahead: int, merger: Merger
) -> Iterator[Marked]:
    for version in versions:
        for partial in aggregate(version, request, plan, pool, ahead):
            if (batch := merger.add(partial)) is not None:
                yield Marked(batch, None)
    yield Marked(merger.finish(), None)


def _in_key_order(tablets: list[Tablet], versions: list[Version], version: TableVersion) -> list[list[RowSet]]:
    """Return the rowsets in groups, each with keys above those of the one before: one group per range if the key begins
    with the range columns, else a single group."""
    ranges = version.partitions.range_columns
    leads = bool(ranges) and ranges == tuple(column.id for column in version.schema.key[: len(ranges)])
    places = {each.lower: place for place, each in enumerate(version.partitions.ranges)}
    groups: dict[int, list[RowSet]] = {}
    for tablet, tablet_version in zip(tablets, versions, strict=True):
        place = places[tablet.partition.lower] if leads else 0
        groups.setdefault(place, []).extend(tablet_version.rowsets())
    return [groups[place] for place in sorted(groups)]


def pinned(spec: ScanSpec, tablets: list[Tablet], table: Table, request: ScanRequest) -> list[Version]:
    """Return the tablets' versions. Only pinned versions are sure to keep what the snapshot needs.

    Raises:
        SnapshotTooOldError: one of them no longer has it.
    """
    snapshot = request.oldest
    versions = [tablet.version for tablet in tablets]
    if not _is_empty(spec, request) and any(snapshot < version.history_floor for version in versions):
        raise SnapshotTooOldError(f"snapshot {snapshot} is older than the history that table {table.name!r} keeps")
    return versions


def _skipped(marked: Iterator[Marked], count: int) -> Iterator[Marked]:
    left = count
    for batch, below in marked:
        rows = batch.num_rows if batch else 0
        yield Marked(batch.slice(left) if batch and left < rows else None, below)
        left = max(left - rows, 0)


def _limited(marked: Iterator[Marked], limit: int) -> Iterator[Marked]:
    left = limit
    for batch, below in marked:
        if batch is None or batch.num_rows < left:
            left -= batch.num_rows if batch else 0
            yield Marked(batch, below)
        else:
            yield Marked(batch.slice(0, left), None)
            return


def estimate(
    spec: ScanSpec, wanted: Wanted, versions: list[Version], version: TableVersion, request: ScanRequest
) -> tuple[list[ScanSplit], dict[str, Any]]:
    """Return the splits of the tablets with upper bounds of their rows and bytes, and what was pruned and why."""
    split_bytes = None if spec.is_whole else spec.split_bytes
    splits: list[ScanSplit] = []
    counts: list[PruneCount] = []
    for tablet, tablet_version in zip(wanted.tablets, versions, strict=True):
        parts, count = split(tablet_version, request, split_bytes)
        counts.append(count)
        splits += _described(tablet, parts, request)
    if spec.all_parts:
        splits += _left_out(wanted, version)
    else:
        # At a snapshot, a part without rows stays empty. One part is kept, for readers that need one.
        splits = [part for part in splits if part.rows] or splits[:1]
    tablets = {
        "tablets": len(version.tablets),
        "tablets_to_read": len(wanted.tablets),
        "partition_levels": [level.explained() for level in wanted.levels],
    }
    return splits, tablets | _explain(counts, request, version.schema)


def _described(tablet: Tablet, parts: list[Split], request: ScanRequest) -> list[ScanSplit]:
    """Describe the splits of a tablet. They cover all of its keys; reading applies the filter's bounds again."""
    ends = request.keys if request.is_split else ALL_KEYS
    lowers = [ends.lower, *(part.keys.lower for part in parts[1:])]
    uppers = [*(part.keys.upper for part in parts[:-1]), ends.upper]
    return [
        ScanSplit(
            tablet=tablet.tablet_id,
            partition=tablet.partition,
            rows=part.rows,
            bytes=part.bytes,
            key_lower=None if lower is None else lower.hex(),
            key_upper=None if upper is None else upper.hex(),
        )
        for part, lower, upper in zip(parts, lowers, uppers, strict=True)
    ]


def _left_out(wanted: Wanted, version: TableVersion) -> list[ScanSplit]:
    """Return the tablets here without a match, each as a part without rows."""
    read = {tablet.tablet_id for tablet in wanted.tablets}
    return [
        ScanSplit(tablet=tablet.tablet_id, partition=tablet.partition, rows=0, bytes=0)
        for tablet in version.tablets
        if tablet.tablet_id not in read and tablet.elsewhere is None
    ]


def _explain(counts: list[PruneCount], request: ScanRequest, schema: TableSchema) -> dict[str, Any]:
    pushed, evaluated = described(request.filter_tree, schema, request.now)
    unchanged = {"rowsets_unchanged": sum(count.rowsets_unchanged for count in counts)}
    return {
        **({"since": request.changes.since, **unchanged} if request.changes else {}),
        "snapshot": request.snapshot,
        "columns_read": [column.name for column in request.columns_read],
        "filter_pushed": pushed,
        "filter_evaluated": evaluated,
        "key_range": {
            "lower": request.keys.lower.hex() if request.keys.lower is not None else None,
            "upper": request.keys.upper.hex() if request.keys.upper is not None else None,
        },
        "rowsets": sum(count.rowsets for count in counts),
        "rowsets_pruned_by_key_range": sum(count.rowsets_by_key for count in counts),
        "rowsets_looked_up_by_key": sum(count.rowsets_by_look_up for count in counts),
        "chunks": sum(count.chunks for count in counts),
        "chunks_pruned_by_zone_map": sum(count.chunks_by_zone_map for count in counts),
        "chunks_read_where_updated": sum(count.chunks_touched_only for count in counts),
        "rows": sum(count.rows_total for count in counts),
        "rows_to_read": sum(count.rows_in_chunks for count in counts),
    }
