"""Scans chunk by chunk: measures, rows in key order, with marks for a reader that resumes, or in any order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import replace

import pyarrow as pa

from ....schemas.limits.budget import Budget, BudgetShare
from ....schemas.limits.limits import Limits
from ....schemas.protocol.request import owner
from ....schemas.protocol.service import Marked, ScanStream
from ....schemas.protocol.sorting import BUDGET_WAIT_SECONDS
from ....schemas.rows.scan import ScanSpec
from ...aggregate.merge import Merger
from ...aggregate.plan import AggregatePlan
from ...manifest.damage import DamageRegistry
from ...rowset.diskrowset import DiskRowSet
from ...rowset.rowset import RowSet
from ...tablet.version import Version
from ..read.chunk import ScanRequest, bytes_of
from ..read.clusters import Cluster, clusters, is_in_order
from ..read.marked import scan_marked
from ..read.ordered import scan_ordered
from ..read.over_tablets import aggregate, scan_unordered
from ..read.pool import ScanPool
from .planned_scans import PlannedScans
from .resolve import ResolvedScan
from .running_counts import RunningCounts

_SHORT_ROWS = 65_536
_LEAST_CHUNK_BYTES = 1 << 20
"""Smaller chunks cost more time than they save memory."""


class ChunkStreams:
    """The streams of one store's scans that read chunk by chunk. Thread safe."""

    def __init__(
        self,
        planned: PlannedScans,
        damage: DamageRegistry,
        pool: ScanPool,
        limits: Limits,
        memory: Budget,
        counts: RunningCounts,
    ) -> None:
        """``pool`` reads chunks; ``counts`` adds up what the scans read and skip."""
        self._planned = planned
        self._damage = damage
        self._pool = pool
        self._limits = limits
        self._memory = memory
        self._counts = counts

    def stream(self, scan: ResolvedScan, is_sorted: bool = False) -> ScanStream:
        """Return the stream of a scan, which reads once it is asked for batches; ``is_sorted`` if the caller sorts its
        rows, hence takes them all at once and counts them."""
        request = scan.request
        memory = BudgetShare(self._memory, BUDGET_WAIT_SECONDS, owner().user)
        marked = self._noticed(scan, memory, is_sorted)
        shown = marked if scan.spec.marks and not request.aggregate else None
        batches = unmarked(marked)
        return ScanStream(request.schema, request.snapshot, batches, shown, counts=request.counts, source=scan.source)

    def _noticed(self, scan: ResolvedScan, memory: BudgetShare, is_sorted: bool) -> Iterator[Marked]:
        count = scan.request.counts
        try:
            with memory, self._damage.noticing(), self._counts.counting(count):
                items = run(scan, self._pool, self._pool.ahead, self._limits, memory, is_sorted)
                yield from self._planned.reading(scan.spec, items)
        finally:
            scan.count_rows(count.rows_in_chunks)


def unmarked(marked: Iterator[Marked]) -> Iterator[pa.RecordBatch]:
    """Yield only the batches of a scan, without its marks."""
    for batch, _ in marked:
        if batch is not None:
            yield batch


def run(
    scan: ResolvedScan, pool: Executor, ahead: int, limits: Limits, memory: BudgetShare, is_sorted: bool = False
) -> Iterator[Marked]:
    """Return the batches of a scan; with ``marks`` if it asks for them and does not aggregate. It takes of ``memory``,
    and gives nothing back; for the rows in hand it takes nothing if the caller sorts and counts them."""
    spec, request, versions = scan.spec, scan.request, scan.versions
    if request.aggregate:
        read = [] if scan.is_empty else versions
        merger = Merger(request.aggregate, limits.aggregate_bytes, memory, may_repeat=spec.partial)
        return _aggregated(read, request, request.aggregate, pool, ahead, merger)
    if scan.is_empty:
        return iter(())
    groups = [clusters(group, request) for group in _in_key_order(scan)] if spec.ordered else []
    if not is_sorted:
        request = _within(memory, request, [cluster for group in groups for cluster in group])
    reach = 0 if spec.limit is not None else ahead
    while reach and not memory.take_spare(reach * request.chunk_bytes):  # they are kept for who does not take them
        reach //= 2
    if spec.ordered:
        key, encoder = scan.version.schema.key, scan.version.encoder
        marked = (item for group in groups for item in scan_ordered(group, request, key, encoder, pool, reach))
    elif spec.marks and not _is_short(spec):
        rowsets = [rowset for version in versions for rowset in version.rowsets()]
        marked = scan_marked(rowsets, request, pool, reach)
    else:
        marked = (Marked(batch, None) for batch in scan_unordered(versions, request, pool, reach))
    marked = _skipped(marked, spec.offset) if spec.offset else marked
    return marked if spec.limit is None else _limited(marked, spec.limit)


def _within(memory: BudgetShare, request: ScanRequest, merged: list[Cluster]) -> ScanRequest:
    """Take memory for the chunks that a scan has in hand, until its reader has taken them: for one, or for as many as
    the largest of the clusters ``merged`` needs. Return the scan with smaller chunks if little memory is left.

    Raises:
        UnavailableError: too little is left for the smallest chunks.
    """
    size = request.chunk_bytes
    while size > _LEAST_CHUNK_BYTES:
        if memory.take_spare(_in_hand(size, memory, request, merged)):
            return replace(request, chunk_bytes=size)
        size //= 2
    memory.take(_in_hand(size, memory, request, merged))
    return replace(request, chunk_bytes=size)


def _in_hand(size: int, memory: BudgetShare, request: ScanRequest, merged: list[Cluster]) -> int:
    """Return about how many bytes a scan has in hand at once with chunks of ``size`` bytes, or as many as let another
    scan of its user read too."""
    most = max((_of_cluster(size, request, cluster) for cluster in merged), default=size)
    return min(most, max(memory.most // 2, size))


def _of_cluster(size: int, request: ScanRequest, cluster: Cluster) -> int:
    if is_in_order(cluster):
        return size
    # A merge has its runs and their merged rows. The run of a MemRowSet is whole, since its rows are in no order.
    runs = (size if isinstance(rowset, DiskRowSet) else bytes_of(rowset, request) for _, rowset in cluster)
    return 2 * sum(runs)


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


def _in_key_order(scan: ResolvedScan) -> list[list[RowSet]]:
    """Return the rowsets in groups, each with keys above those of the one before: one group per range if the key begins
    with the range columns, else a single group."""
    partitions, key = scan.version.partitions, scan.version.schema.key
    ranges = partitions.range_columns
    leads = bool(ranges) and ranges == tuple(column.id for column in key[: len(ranges)])
    places = {each.lower: place for place, each in enumerate(partitions.ranges)}
    groups: dict[int, list[RowSet]] = {}
    for tablet, version in zip(scan.wanted.tablets, scan.versions, strict=True):
        place = places[tablet.partition.lower] if leads else 0
        groups.setdefault(place, []).extend(version.rowsets())
    return [groups[place] for place in sorted(groups)]


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
