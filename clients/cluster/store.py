"""PlacedStore: several servers that share their tables, behind the interface of one store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import pyarrow as pa

from ...schemas.errors import ConflictError, InvalidArgumentError, UnavailableError, WrongServerError
from ...schemas.limits.budget import Budget
from ...schemas.protocol.service import KeyReader, PendingResult, RowWriter, ScanStream
from ...schemas.protocol.sorting import skipped, sorted_stream
from ...schemas.protocol.verb import Verb
from ...schemas.protocol.verbs import Verbs
from ...schemas.rows.batches import begun
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan
from ...schemas.rows.statement import Statement
from ...schemas.rows.transaction import StagedBatch, StagedShape, StageResult, TransactionCommit, TransactionResult
from ...schemas.rows.write import CommitMode, WriteCommand, WriteResult
from ...schemas.store.description import (
    ColumnStats,
    DroppedTable,
    Health,
    TableDescription,
    TableStats,
    TabletMap,
    TabletPlace,
)
from ...schemas.store.grants import Grant, GrantChange
from ...schemas.store.maintenance import MaintenanceState, PauseMaintenance
from ...schemas.store.metrics import Metrics, joined
from ...schemas.store.moving import MoveProgress
from ...schemas.store.placement import Placement
from ...schemas.table.alter import Alteration
from ...schemas.table.table import TableDefinition
from ..flight.held_batches import HeldBatches
from ..flight.store import Answered, FlightStore
from . import aggregating, definitions, moving, point_reads, reading, transactions
from .planning import ServersPlan, now, planned
from .servers import Servers
from .tablet_locations import TabletLocationsCache
from .writing import PlacedWrite, numbered_by

Answer = TypeVar("Answer")

_SORTS_BYTES = 1536 << 20
"""The most memory of all rows to sort."""
_ATTEMPTS = 8
"""Of a scan, when tablets move during it."""


class PlacedStore(Verbs, KeyReader, RowWriter):
    """A client of all servers of a placement, which are one store: see ``schemas.service.StoreService`` and
    docs/servers.md. Thread safe."""

    def __init__(self, servers: Servers, public: FlightStore | None = None) -> None:
        """``public`` is the address of all of ``servers`` for clients that cannot reach each, if there is one."""
        self.servers = servers
        self.public = public
        self._cache = TabletLocationsCache(servers)
        self._memory = Budget("rows to sort", _SORTS_BYTES)

    def perform(self, verb: Verb, *_: Any, **__: Any) -> Any:
        """Not supported. Raises InvalidArgumentError."""
        what = verb.alone or f"{verb.name} is not possible"
        raise InvalidArgumentError(f"{what} when several servers share the table: its files are in several stores")

    def placement(self) -> Placement:
        """See StoreService."""
        return self.servers.placement

    # Tables

    def create_table(self, definition: TableDefinition) -> TableDescription:
        """See StoreService."""
        return definitions.create(self.servers, definition)

    def alter_table(self, alteration: Alteration) -> TableDescription:
        """See StoreService."""
        self._cache.forget(alteration.table)
        try:
            return definitions.alter(self.servers, alteration)
        finally:
            self._cache.forget(alteration.table)

    def drop_table(self, name: str, keep_seconds: int = 0) -> None:
        """See StoreService."""
        self._cache.forget(name)
        definitions.drop(self.servers, name, keep_seconds)

    def recall_table(self, table: str | int, new_name: str | None = None) -> TableDescription:
        """See StoreService. By name only: table ids differ between servers."""
        return definitions.recall(self.servers, table, new_name)

    def dropped_tables(self) -> list[DroppedTable]:
        """See StoreService. As the first server lists them."""
        return self.servers.store(self.servers.names[0]).dropped_tables()

    def tables(self) -> list[str]:
        """See StoreService. As the reachable servers list them: each has all tables."""
        known, _ = self.servers.there(lambda store: store.tables())
        return sorted(set(chain.from_iterable(known.values())))

    def describe_table(self, name: str) -> TableDescription:
        """See StoreService. While an alteration has reached only some servers, the columns that all have.

        Raises:
            ConflictError: the servers' descriptions differ.
            NotFoundError: no reachable server has it. Others are not waited for: the name may be mistyped.
        """
        return definitions.shared(self.servers.each_if_known(lambda store: store.describe_table(name)))

    def tablets(self, name: str) -> TabletMap:
        """See StoreService. Every tablet with its server and its number there."""
        maps = self.servers.each_with(lambda store: store.tablets(name))
        places = [
            TabletPlace(tablet=place.tablet, partition=place.partition, server=server)
            for server, found in maps.items()
            for place in found.tablets
            if place.server is None
        ]
        first = next(iter(maps.values()))
        order = {partition: number for number, partition in enumerate(first.partitions.tablets())}
        places.sort(key=lambda place: order.get(place.partition, len(order)))
        return first.model_copy(update={"tablets": places})

    def table_stats(self, name: str) -> TableStats:
        """See StoreService. Sums over all servers, without memory, which belongs to each server."""
        found = list(self.servers.each_with(lambda store: store.table_stats(name)).values())
        columns: dict[str, ColumnStats] = {}
        for column in chain.from_iterable(stats.columns for stats in found):
            columns[column.name] = _added(columns[column.name], column) if column.name in columns else column
        return TableStats(
            name=name,
            live_rows=sum(stats.live_rows for stats in found),
            bytes_on_disk=sum(stats.bytes_on_disk for stats in found),
            tablets=[tablet for stats in found for tablet in stats.tablets],
            columns=list(columns.values()),
            last_change=max(stats.last_change for stats in found),
        )

    def grant(self, change: GrantChange) -> list[Grant]:
        """See StoreService. On every server that has the table."""
        return next(iter(self.servers.each_with(lambda store: store.grant(change)).values()))

    def revoke(self, change: GrantChange) -> list[Grant]:
        """See StoreService. On every server that has the table."""
        return next(iter(self.servers.each_with(lambda store: store.revoke(change)).values()))

    def grants(self) -> list[Grant]:
        """See StoreService. As the first server lists them."""
        return self.servers.store(self.servers.names[0]).grants()

    # Rows

    def write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> WriteResult:
        """See StoreService. One commit on each server that gets rows."""
        if batch.num_rows == 1 and (written := self._write_one(command, batch, seq)):
            return written
        one = command.model_copy(update={"commit": CommitMode.BATCH})
        (answer,) = PlacedWrite(self.servers, self._cache, one, seq).write_all([batch])
        return answer

    def _write_one(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None) -> WriteResult | None:
        """Write a batch of one row without threads; None, with nothing done, if only the batch lane can."""
        found = self._cache.of(command.table).routed.of_batch(batch)
        if found is None:
            return None
        server, tablet = found
        if command.writer is not None and seq is not None:
            command = _numbered(command, tablet)
        try:
            return self.servers.store(server).write(command, batch, seq)
        except WrongServerError:
            self._cache.forget(command.table)
            return None

    def write_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> WriteResult | None:
        """See RowWriter. A numbered write is numbered by tablet, since answers move with it."""
        found = self._cache.of(command.table).routed.of_row(row)
        if found is None:
            return None
        server, tablet = found
        if command.writer is not None and seq is not None:
            command = _numbered(command, tablet)
        try:
            return self.servers.store(server).write_row(command, row, seq)
        except WrongServerError:
            self._cache.forget(command.table)
            return None

    def begin_row(self, command: WriteCommand, row: Mapping[str, Any], seq: int | None = None) -> PendingResult | None:
        """See RowWriter. Waits for the answer."""
        result = self.write_row(command, row, seq)
        return None if result is None else Answered(result)

    def begin_write(self, command: WriteCommand, batch: pa.RecordBatch, seq: int | None = None) -> Answered:
        """See StoreService. Waits for the answer."""
        return Answered(self.write(command, batch, seq))

    def write_all(self, command: WriteCommand, batches: Iterable[pa.RecordBatch]) -> Iterator[WriteResult]:
        """See StoreService."""
        if command.commit is CommitMode.STREAM:
            staged = list(batches)
            if staged:
                yield self.write(command, pa.concat_batches(staged))
            return
        yield from PlacedWrite(self.servers, self._cache, command).write_all(batches)

    def stage(self, command: WriteCommand, batches: Iterable[StagedBatch]) -> StageResult:
        """See StoreService. Every server gets the rows of its tablets."""
        return transactions.stage(self.servers, self._cache, command, batches)

    def commit_transaction(self, commit: TransactionCommit) -> TransactionResult:
        """See StoreService. One commit on each server: docs/servers.md explains the consequences."""
        return transactions.commit(self.servers, self._cache, commit)

    def staged_parts(self, transaction: str) -> list[StagedShape]:
        """See StoreService. Those of all servers, once each."""
        found = self.servers.each(lambda store: store.staged_parts(transaction)).values()
        return list({each.model_dump_json(): each for each in chain.from_iterable(found)}.values())

    def abort_transaction(self, transaction: str) -> None:
        """See StoreService."""
        self.servers.each(lambda store: store.abort_transaction(transaction))

    def execute(self, statement: Statement) -> WriteResult:
        """See StoreService. One commit on each server, of its own rows: docs/servers.md."""
        return transactions.execute(self.servers, self._cache, statement)

    def commits(self, table: str, since: int | str | None = None) -> pa.Table:
        """See StoreService. Those of all servers; a write to several servers is a commit on each."""
        found = self.servers.each_with(lambda store: store.commits(table, since)).values()
        return pa.concat_tables(list(found)).sort_by("timestamp")

    def last_change(self, table: str) -> int:
        """See StoreService. Covers the reachable servers only: a reader up to it misses changes on the others."""
        changes, _ = self.servers.there_with(lambda store: store.last_change(table))
        return max(changes.values())

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService. One snapshot of all servers."""
        if spec.checked().order_by:
            return sorted_stream(spec, self._key(spec.table), lambda inner: self._presorted(spec, inner), self._memory)
        if spec.offset:
            first = None if spec.limit is None else spec.limit + spec.offset
            found = self.scan(spec.model_copy(update={"offset": 0, "limit": first}))
            return ScanStream(found.schema, found.snapshot, skipped(found.batches, spec.offset))
        plan, described = self._planned(self._asked(spec))
        columns = pa.schema([column.field for column in described.columns])
        schema = spec.batch_schema(columns)
        if spec.aggregate is not None:
            try:
                rows = self._aggregated(plan, spec, columns)
            except BaseException:
                plan.release(self.servers)
                raise
            return ScanStream(schema, plan.snapshot, iter(rows.to_batches()))
        if spec.ordered:
            batches = self._in_order(plan, described.primary_key, schema)
        elif spec.limit is not None:
            batches = reading.limited(reading.in_turn(self.servers, plan), spec.limit) if spec.limit else iter(())
        else:
            batches = reading.unordered(self.servers, plan)
        return ScanStream(schema, plan.snapshot, self._released(plan, batches))

    def _key(self, table: str) -> list[str]:
        described, _ = self.servers.there_with(lambda store: store.describe_table(table))
        return next(iter(described.values())).primary_key

    def _asked(self, spec: ScanSpec) -> ScanSpec:
        """Return the scan for the servers, with the columns and measures that combining the answers needs."""
        if spec.aggregate is not None:
            return spec.model_copy(update={"aggregate": aggregating.partial_measures(spec.aggregate)})
        if not spec.ordered or spec.columns is None:
            return spec
        wanted = [*spec.columns, *(name for name in self._key(spec.table) if name not in spec.columns)]
        return spec.model_copy(update={"columns": wanted})

    def _planned(self, spec: ScanSpec) -> tuple[ServersPlan, TableDescription]:
        """Return a plan whose rowsets all servers have pinned, and the table as of the plan."""
        for _ in range(_ATTEMPTS):
            plan = planned(self.servers, spec.model_copy(update={"pin": True}))
            name, first = next(iter(plan.plans.items()))
            try:
                described = self.servers.store(name).describe_table(spec.table)
            except BaseException:
                plan.release(self.servers)
                raise
            if described.schema_version == first.schema_version:
                return plan, described
            plan.release(self.servers)
        raise ConflictError(f"table {spec.table!r} keeps being altered while the scan is planned; try again")

    def _released(self, plan: ServersPlan, batches: Iterator[pa.RecordBatch]) -> HeldBatches:
        """Return the batches; the servers' pins are released if not all batches are read."""
        return HeldBatches(batches, lambda: plan.release(self.servers), ends_by_itself=plan.spec.limit is None)

    def _presorted(self, spec: ScanSpec, inner: ScanSpec) -> ScanStream:
        """Return the rows to sort: from each server those that can be within the limit."""
        if inner.ordered:
            return self.scan(inner)
        first = None if spec.limit is None else spec.limit + spec.offset
        plan, described = self._planned(inner.model_copy(update={"order_by": spec.order_by, "limit": first}))
        schema = inner.batch_schema(pa.schema([column.field for column in described.columns]))
        batches = chain.from_iterable(self._streams(plan))
        return ScanStream(schema, plan.snapshot, self._released(plan, batches))

    def _in_order(self, plan: ServersPlan, key: list[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Merge the ordered streams of all servers. The streams include the key; the result may not. If a tablet moves
        while its server restarts, all servers are read again at the same snapshot, up to where the rows ended."""
        limit, by = plan.spec.limit, [*key, "_timestamp"] if plan.spec.changes else key
        given = 0
        if limit == 0:
            return
        for _ in range(_ATTEMPTS):
            merged = (batch.select(schema.names) for batch in reading.merged(self._streams(plan), by))
            try:
                for batch in skipped(merged if limit is None else reading.limited(merged, limit), given):
                    given += batch.num_rows
                    yield batch
                return
            except WrongServerError:
                plan.renew(self.servers)
        raise _keep_moving()

    def _aggregated(self, plan: ServersPlan, spec: ScanSpec, columns: pa.Schema) -> pa.Table:
        schema = plan.spec.batch_schema(columns)
        partials = [pa.Table.from_batches(list(stream), schema) for stream in self._streams(plan)]
        return aggregating.merged(partials, spec.aggregate or {}, spec.group_by or [], spec.batch_schema(columns))

    def _streams(self, plan: ServersPlan) -> list[Iterator[pa.RecordBatch]]:
        """Start a scan on each server; plan again if tablets have moved since."""
        for _ in range(_ATTEMPTS):
            try:
                return list(self._parts(plan).values())
            except (UnavailableError, WrongServerError) as error:
                if isinstance(error, UnavailableError) and error.retry_after_seconds is None:
                    raise
                plan.renew(self.servers)
        raise _keep_moving()

    def _parts(self, plan: ServersPlan) -> dict[str, Iterator[pa.RecordBatch]]:
        return self.servers.each_named(
            lambda name, store: reading.begun(store.scan(plan.part(name)).batches), list(plan.plans)
        )

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService. Each split names its server."""
        return planned(self.servers, spec).whole(self.servers.placement.servers)

    def release_scan(self, lease: str) -> None:
        """Does nothing: a lease belongs to one server."""

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """See StoreService. Servers are read one after the other, each as of now."""
        return point_reads.get(self.servers, self._cache, table, keys)

    def look_up(self, table: str, keys: pa.RecordBatch) -> ScanStream:
        """See StoreService. Servers are read one after the other, and each batch as of its own now."""
        schema, batches = begun(point_reads.look_up(self.servers, self._cache, table, keys))
        return ScanStream(schema, None, batches)

    def get_row(self, table: TableDescription, key: Sequence[Any]) -> dict[str, Any] | None:
        """See KeyReader."""
        server = self._cache.of(table.name).routed.of_key(key)
        return super().get_row(table, key) if server is None else self.servers.store(server).get_row(table, key)

    def metrics(self) -> Metrics:
        """See StoreService. Those of the reachable servers, each number with the label ``server``."""
        found, _ = self.servers.there_now(lambda store: store.metrics())
        return joined("server", found)

    def move_tablet(
        self, table: str, tablet: int, to: str, server: str | None = None, progress: MoveProgress | None = None
    ) -> None:
        """See StoreService. Raises as ``moving.move``."""
        try:
            moving.move(self.servers, table, tablet, to, server, progress)
        finally:
            self._cache.forget(table)

    def follow(self, ticket: ScanSpec) -> Iterator[pa.RecordBatch]:
        """Return the batches of a ticket whose server rejected it because the tablet has moved.

        Raises:
            WrongServerError: no server has the tablet.
        """
        return reading.followed(self.servers, ticket).batches

    def scan_split(self, server: str, ticket: ScanSpec) -> ScanStream:
        """Start the scan of one split of a plan, wherever its tablet is now. ``server`` made the ticket.

        Raises:
            WrongServerError: no server has the tablet.
        """
        return reading.opened(self.servers, server, ticket)

    # The store

    def maintenance(self) -> MaintenanceState:
        """See StoreService. Of the reachable servers, whose names come first."""
        found, _ = self.servers.there_now(lambda store: store.maintenance())

        def named(work: Callable[[MaintenanceState], list[Any]]) -> list[Any]:
            return _named({name: work(state) for name, state in found.items()})

        return MaintenanceState(
            is_on=all(state.is_on for state in found.values()),
            paused={kind: end for state in found.values() for kind, end in state.paused.items()},
            running=[f"{name}: {each}" for name, state in found.items() for each in state.running],
            due=sorted(named(lambda state: state.due), key=lambda each: -each.score),
            due_count=sum(state.due_count for state in found.values()),
            done=sorted(named(lambda state: state.done), key=lambda each: -each.ended),
            failing=sorted(named(lambda state: state.failing), key=lambda each: each.since),
        )

    def pause_maintenance(self, asked: PauseMaintenance) -> None:
        """See StoreService. On every server."""
        self.servers.each(lambda store: store.pause_maintenance(asked))

    def maintain(self, table: str, op: str) -> dict[str, Any]:
        """See StoreService."""
        done = self.servers.each_with(lambda store: store.maintain(table, op)).values()
        parts = {part for each in done for part, value in each.items() if isinstance(value, int)}
        return {"op": op} | {part: sum(each.get(part, 0) for each in done) for part in sorted(parts)}

    def now(self, at_least: int = 0) -> int:
        """See StoreService. The latest of all clocks; the others follow it."""
        return now(self.servers, at_least)

    def health(self) -> Health:
        """See StoreService. The worst health of all servers, with the damaged files of all."""
        return worst(self.servers.each(lambda store: store.health()))

    def close(self) -> None:
        """Close the connections; the servers keep running."""
        self.servers.close()

    def __repr__(self) -> str:
        return f"PlacedStore({', '.join(self.servers.names)})"


def _numbered(command: WriteCommand, tablet: str) -> WriteCommand:
    """Return a command with a writer for one tablet."""
    assert command.writer is not None
    return command.model_copy(update={"writer": _writer_of(command.writer, tablet)})


_writer_of = lru_cache(maxsize=1024)(numbered_by)


def _keep_moving() -> UnavailableError:
    return UnavailableError("tablets keep moving between servers during the scan; try again", 1.0)


_HOW_BAD = ("ok", "degraded", "read_only")


def worst(found: Mapping[str, Health]) -> Health:
    """Return the worst of the servers' healths, with the damaged files of all. It names no store: a client would take
    the next one for another store."""
    name = max(found, key=lambda name: (_HOW_BAD.index(found[name].status), name))
    if found[name].status == "ok":
        return found[name].model_copy(update={"server": None, "store_uuid": ""})
    damaged = [file for health in found.values() for file in health.damaged]
    failing = _named({name: health.failing for name, health in found.items()})
    update = {"reason": f"{name}: {found[name].reason}", "damaged": damaged, "failing": failing, "store_uuid": ""}
    return found[name].model_copy(update=update)


def _named(works: Mapping[str, list[Any]]) -> list[Any]:
    """Return the work of each server, whose name comes first."""
    every = [(name, each) for name, found in works.items() for each in found]
    return [each.model_copy(update={"name": f"{name}: {each.name}"}) for name, each in every]


def _added(first: ColumnStats, other: ColumnStats) -> ColumnStats:
    return ColumnStats(
        name=first.name,
        encodings=list(dict.fromkeys([*first.encodings, *other.encodings])),
        bytes_on_disk=first.bytes_on_disk + other.bytes_on_disk,
        raw_bytes=first.raw_bytes + other.raw_bytes,
    )
