"""Resolves a scan into what the tablets read: columns by id, a bound filter, a key range, one snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2s

from ....schemas.cells.timestamp import microseconds_of
from ....schemas.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    SnapshotTooOldError,
    WrongServerError,
)
from ....schemas.protocol.request import check_columns_meant
from ....schemas.rows.scan import ScanSpec
from ....schemas.table.column import ColumnSchema
from ....schemas.table.partition_schema import TabletPartition, sum_of
from ....schemas.table.table import TableSchema
from ...aggregate.plan import AggregatePlan
from ...filter.compiled import FilterCache
from ...filter.expiry import Expiry, unexpired
from ...filter.prune import KeyRange
from ...partition.prune import LevelCount
from ...partition.prune import prune as prune_tablets
from ...table.point_plan import PointPlan
from ...table.table import Table
from ...table.table_version import TableVersion, check_here
from ...tablet.tablet import Tablet
from ...tablet.version import Version
from ..read.chunk import ChangeRange, ScanRequest
from .planned_scans import PlannedScan
from .snapshots import Snapshots


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


@dataclass(frozen=True, slots=True, eq=False)
class ResolvedScan:
    """A scan, and what it reads."""

    spec: ScanSpec
    table: Table
    version: TableVersion
    """The names and columns of the table."""
    request: ScanRequest
    wanted: Wanted
    versions: list[Version]
    """Those of the wanted tablets. They keep what the scan reads, whatever happens to the table's history."""

    @classmethod
    def of(cls, spec: ScanSpec, table: Table, version: TableVersion, request: ScanRequest) -> ResolvedScan:
        """Return a scan of tablets as they are now.

        Raises:
            StoreError: a tablet is gone, elsewhere or damaged, or history does not reach back to the snapshot.
        """
        wanted = wanted_tablets(spec, table, version, request)
        return cls(spec, table, version, request, wanted, pinned(spec, wanted.tablets, table, request))

    @property
    def is_empty(self) -> bool:
        """Whether no row can match."""
        return _is_empty(self.spec, self.request)

    @property
    def source(self) -> tuple[int, TableSchema]:
        """See ``ScanStream.source``."""
        return self.table.table_id, self.version.schema

    def count_rows(self, rows: int) -> None:
        """Divide the rows that it has read among its tablets by their sizes, which cost a call for each rowset."""
        tablets = self.wanted.tablets
        if len(tablets) == 1:
            tablets[0].rows_read += rows
        elif rows:
            sizes = [sum(map(len, version.rowsets())) for version in self.versions]
            total = max(sum(sizes), 1)
            for tablet, size in zip(tablets, sizes, strict=True):
                tablet.rows_read += rows * size // total

    def to_plan(self) -> PlannedScan:
        """Return the same as a planned scan, whose parts are read later."""
        by_tablet = {
            tablet.tablet_id: version for tablet, version in zip(self.wanted.tablets, self.versions, strict=True)
        }
        snapshot, changes = self.request.snapshot, self.request.changes
        ticket = self.spec.pinned(snapshot)
        moments = ticket.as_of, ticket.changes
        return PlannedScan(moments, self.table, self.version, snapshot, changes, by_tablet)


class Resolver:
    """Resolves the scans of one store. Thread safe."""

    def __init__(
        self,
        snapshots: Snapshots,
        filters: FilterCache,
        chunk_bytes: int,
        is_far: bool,
    ) -> None:
        """``is_far`` says whether the store's files are far away (`FarFileSystem`)."""
        self._snapshots = snapshots
        self._filters = filters
        self._chunk_bytes = chunk_bytes
        self._is_far = is_far

    def key(self, table: Table, spec: ScanSpec) -> list[str]:
        """Return the key columns of a scan's table, after checking that its sort columns exist."""
        schema = table.schema
        for term in spec.order_by or ():
            kind = schema.column(term.column).logical
            if not kind.has_order:
                raise InvalidArgumentError(f"column {term.column!r} is {kind}: rows cannot be sorted by it")
        return [column.name for column in schema.key]

    def resolved(self, table: Table, spec: ScanSpec) -> ResolvedScan:
        """Return a scan of the table as it is now.

        Raises:
            StoreError: the scan is invalid, or history does not reach back to its snapshot.
        """
        while True:
            version = table.version
            check_columns_meant(table.name, version.schema.columns)
            request = self._request(spec.checked(), table, version, *self._snapshots.range(spec, table, version))
            scan = ResolvedScan.of(spec, table, version, request)
            if table.version is version:  # else a pinned rowset may lack a dropped column, or a new tablet its rows
                return scan

    def planned(self, table: Table, spec: ScanSpec, planned: PlannedScan) -> ResolvedScan | None:
        """Return a part of a planned scan, with the versions that were kept for it; None if the plan lacks them.

        Tickets are not signed, and who may read what was decided by the names of today. So the table and the columns
        that are read must still be those of the plan.
        """
        version = planned.version
        if table.table_id != planned.table.table_id:
            return None
        request = self._request(spec, table, version, planned.snapshot, planned.changes)
        now = table.version.schema.by_name
        if any(column.name not in now or now[column.name].id != column.id for column in request.columns_read):
            return None
        wanted = wanted_tablets(spec, table, version, request)
        versions = planned.versions_of(wanted.tablets)
        return None if versions is None else ResolvedScan(spec, table, version, request, wanted, versions)

    def _request(
        self, spec: ScanSpec, table: Table, version: TableVersion, snapshot: int, changes: ChangeRange | None
    ) -> ScanRequest:
        return resolve_ticket(spec, table, version, snapshot, changes, self._filters, self._chunk_bytes, self._is_far)


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
    if changes is None:
        where = unexpired(where, schema, snapshot)
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
        expiry=Expiry.of(schema),
        limit=None if spec.limit is None else spec.limit + spec.offset,
        inverse=where.inverse,
        points=where.points,
        filter_tree=where.tree,
        now=now,
        few=where.few,
        is_key_range=where.is_key_range,
        aggregate=plan,
        is_split=part is not None,
        is_far=is_far,
        row_columns=version.plans[PointPlan].columns_of(columns) if plan is None and columns else None,
    )


def _columns(spec: ScanSpec, schema: TableSchema) -> tuple[ColumnSchema, ...]:
    names = schema.arrow.names if spec.columns is None else spec.columns
    return tuple(schema.column(name) for name in names)


def digest(table: Table, request: ScanRequest) -> str:
    """Return a digest of the columns that a scan reads, equal for two scans with the same columns, names and types."""
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
    if spec.planned is not None and spec.planned != digest(table, request):
        raise ConflictError(why)
    return request


def _part(spec: ScanSpec) -> KeyRange | None:
    """Return the key range of a ticket; None for all keys."""
    if spec.key_lower is None and spec.key_upper is None:
        return None
    lower, upper = (None if end is None else bytes.fromhex(end) for end in (spec.key_lower, spec.key_upper))
    return KeyRange(lower, upper)


def wanted_tablets(spec: ScanSpec, table: Table, version: TableVersion, request: ScanRequest) -> Wanted:
    """Plan which tablets a scan reads.

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
    raise NotFoundError(f"a range of table {table.name!r} was dropped after the scan was planned: plan the scan again")


def pinned(spec: ScanSpec, tablets: list[Tablet], table: Table, request: ScanRequest) -> list[Version]:
    """Return the versions of the tablets that a scan reads. Only pinned versions are sure to keep what the snapshot
    needs.

    Raises:
        SnapshotTooOldError: one of them no longer has it.
    """
    snapshot = request.oldest
    versions = [tablet.version for tablet in tablets]
    if not _is_empty(spec, request) and any(snapshot < version.history_floor for version in versions):
        raise SnapshotTooOldError(
            f"snapshot {snapshot} is older than the history that table {table.name!r} keeps: read at a later time"
        )
    return versions


def _is_empty(spec: ScanSpec, request: ScanRequest) -> bool:
    return spec.limit == 0 or (request.where is not None and request.where.is_trivially_false)
