"""Reads: the scans and point reads of one store."""

from __future__ import annotations

from collections.abc import Callable

from ....schemas.limits.budget import Budget
from ....schemas.protocol.sorting import unsorted
from ....schemas.rows.scan import ScanSpec
from ....schemas.rows.scan_plan import ScanPlan
from ... import threads
from ...commit.row_stamps import RowStamps
from ...filter.compiled import FilterCache
from ...manifest.damage import DamageRegistry
from ...mvcc.mvcc import MvccManager
from ...options import StoreOptions
from ...table.table import Table
from ..read.pool import ScanPool
from .by_chunks import ChunkStreams
from .choose import Ways
from .estimate import estimate
from .few_groups import groups_at_most
from .kept_answers import StoreAnswers
from .planned_scans import PlannedScans
from .point_scan import PointScans
from .range_scan import RangeScans
from .resolve import Resolver, digest
from .running_counts import RunningCounts
from .snapshots import Snapshots


class Reads:
    """The scans and point reads of one store. For what the methods do, see ``schemas.service.StoreService``. Thread
    safe."""

    def __init__(
        self,
        table: Callable[[str], Table],
        mvcc: MvccManager,
        snapshots: Snapshots,
        planned: PlannedScans,
        damage: DamageRegistry,
        pool: ScanPool,
        options: StoreOptions,
        stamps: RowStamps,
        keeps_answers: bool,
        is_far: bool,
    ) -> None:
        """``table`` finds a table by name; ``pool`` reads chunks, of files that may be far away (`FarFileSystem`)."""
        self._table = table
        self._mvcc = mvcc
        self._planned = planned
        self._limits = limits = options.limits
        self.memory = Budget("rows to sort, groups and scans", options.reads_bytes)
        self._answers: StoreAnswers | None = None
        self._answers_bytes, self._keeps_answers = options.answers_bytes, keeps_answers
        self._lock = threads.Lock()
        self.counts = RunningCounts()
        """What all scans have read and skipped, but for those of rows by their keys."""
        filters = FilterCache(limits)
        self._resolver = Resolver(snapshots, filters, options.scan_batch_bytes, is_far)
        self.ways = Ways(
            table=table,
            now=mvcc.snapshot,
            snapshots=snapshots,
            points=PointScans(mvcc.snapshot, filters, limits),
            ranges=RangeScans(mvcc.snapshot, filters, self.counts),
            planned=planned,
            resolver=self._resolver,
            chunks=ChunkStreams(planned, damage, pool, limits, self.memory, self.counts),
            damage=damage,
            counts=self.counts,
            sorting=self.memory,
            limits=limits,
            stamps=stamps,
        )
        """Read rows: ``scan``, ``get_row`` and ``look_up``."""

    def kept_answers(self) -> tuple[StoreAnswers, None] | None:
        """See AnswerKeeper. None is kept until this is first called."""
        if not self._keeps_answers:
            return None
        with self._lock:
            if self._answers is None:
                self._answers = StoreAnswers(self._answers_bytes)
            return self._answers, None

    @property
    def answers_kept(self) -> tuple[int, int]:
        """How many gets kept answers have answered, and how much memory they take."""
        return (0, 0) if self._answers is None else (self._answers.hits, self._answers.used_bytes)

    def used_bytes(self) -> int:
        """Return how much memory reads use."""
        return self.memory.taken_bytes + self.answers_kept[1]

    def close(self) -> None:
        """Keep no answers any more: the store is being closed."""
        if self._answers is not None:
            self._answers.close()

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService."""
        table = self._table(spec.checked().table)
        scan = self._resolver.resolved(table, unsorted(spec, self._resolver.key(table, spec)))
        spec, version, request = scan.spec, scan.version, scan.request
        splits, explain = estimate(scan)
        read_here, read_all = scan.wanted.sums
        rows = sum(split.rows for split in splits)
        may_combine = spec.partial and not spec.is_part
        return ScanPlan(
            snapshot=request.snapshot,
            schema_version=version.schema.version,
            splits=splits,
            planned=digest(scan.table, request),
            hash=version.hash,
            explain=explain,
            tablets_here=version.tablets_here,
            tablets_all=version.tablets_all,
            read_here=read_here,
            read_all=read_all,
            groups_at_most=groups_at_most(scan.versions, version.schema, request, rows, self._limits)
            if may_combine
            else None,
            lease=self._planned.keep(scan.to_plan(), splits) if spec.pin and splits else None,  # else nobody reads it
        )

    def last_change(self, table: str) -> int:
        """See StoreService."""
        self._mvcc.check_now()
        return self._table(table).settled_change(self._mvcc)

    def release(self, lease: str) -> None:
        """See StoreService."""
        self._planned.end(lease)
