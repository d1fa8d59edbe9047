"""Judges what servers say of themselves and their tables. Pure: `facts` has asked them.

What is checked is what Apache Kudu's ``ksck`` checks (``src/kudu/tools/ksck.cc``), as far as tablets without replicas
have it: that all servers answer, agree on the tables, and have each tablet once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from ....schemas.errors import ConflictError, StoreError, UnavailableError
from ....schemas.store.placement import Placement
from ....schemas.table.partition_schema import TabletPartition
from ..definitions import half_altered, same
from .check_processes import of_processes, process_states
from .check_report import ClusterReport, Fault, FaultKind, MoveState, ServerState, TableState
from .facts import ServerFacts, TableFacts, Told

CLOCK_WARNING_SECONDS = 1.0
CLOCK_ERROR_SECONDS = 10.0
"""The default of the servers' option ``clock_error_seconds``: they follow no clock that is further ahead."""
_NAMED_MAX = 3

Facts = Mapping[str, ServerFacts]
Owners = Mapping[TabletPartition, Sequence[tuple[str, int]]]
"""Of each tablet: the servers that have it, and its number there."""


def judged(told: Told, placement: Placement | None) -> ClusterReport:
    """Judge what servers answered to a check: return the state of the servers of a placement and of their tables, and
    all that is wrong with them."""
    facts = {name: each for name, each in told.items() if isinstance(each, ServerFacts)}
    away = [name for name, each in told.items() if isinstance(each, UnavailableError)]
    ahead = _clocks_ahead(facts)
    names = sorted({table for each in facts.values() for table in each.tables})
    moves = [move for table in names for move in _moves(table, _having(facts, table))]
    states: list[TableState] = []
    faults = [*_of_servers(told, ahead), *_of_agreement(facts)]
    for table in names:
        state, found = _table(table, facts, away)
        states.append(state)
        faults += found
    faults += map(_of_move, moves)
    locations = {} if placement is None else placement.servers
    return ClusterReport(
        servers=[_server(name, each, locations.get(name, ()), ahead.get(name, 0.0)) for name, each in told.items()],
        tables=states,
        moves=moves,
        faults=sorted(faults, key=lambda fault: not fault.is_error),
    )


# Servers


def _server(name: str, told: ServerFacts | StoreError, locations: Sequence[str], ahead: float) -> ServerState:
    if isinstance(told, StoreError):
        state = "away" if isinstance(told, UnavailableError) else "failed"
        return ServerState(server=name, locations=[*locations], state=state)
    tablets = [tablet for table in told.tables.values() for tablet in table.stats.tablets]
    return ServerState.model_validate(
        {
            "server": name,
            "locations": [*locations],
            "state": told.health.status,
            "version": told.health.version,
            "tablets": len(tablets),
            "bytes": sum(tablet.bytes_on_disk for tablet in tablets),
            "processes": process_states(told.processes),
            "disk_free_bytes": told.disk_free_bytes,
            "clock_ahead_seconds": ahead,
        }
    )


def _of_servers(told: Told, ahead: Mapping[str, float]) -> Iterator[Fault]:
    for name, each in told.items():
        who = f"the server {name!r}" if name else "the server"
        if isinstance(each, UnavailableError):
            what = each.message if repr(name) in each.message or not name else f"{who}: {each.message}"
            next_step = "start the server, or find out why it cannot be reached"
            yield Fault(kind=FaultKind.SERVER_AWAY, server=name, what=what, next_step=next_step)
        elif isinstance(each, StoreError):
            yield Fault(kind=FaultKind.SERVER_FAILED, server=name, what=f"{who}: {each.code}: {each.message}")
        else:
            yield from _of_server(name, who, each, ahead[name])
            yield from of_processes(name, who, each.processes)


def _of_server(name: str, who: str, each: ServerFacts, ahead: float) -> Iterator[Fault]:
    health = each.health
    if not health.takes_writes:
        yield Fault(kind=FaultKind.NO_WRITES, server=name, what=f"{who} rejects writes: {health.reason}")
    elif health.status != "ok" and health.reason:
        yield Fault(kind=FaultKind.DEGRADED, server=name, what=f"{who}: {health.reason}")
    for file in health.damaged:
        kind = FaultKind.QUARANTINE if file.is_quarantined else FaultKind.DAMAGED_FILE
        of = f" of tablet {file.tablet} of {file.table}" if file.table else ""
        closed = ", so the tablet rejects all reads and writes" if file.is_quarantined else ""
        what = f"{who}: the file {file.path}{of} is damaged{closed}: {file.why}"
        yield Fault(kind=kind, server=name, table=file.table, what=what, next_step=file.next_step)
    for table, facts in each.tables.items():
        for tablet in facts.stats.tablets:
            if tablet.quarantine and not any(
                (file.table, file.tablet) == (table, tablet.tablet) for file in health.damaged
            ):
                what = f"{who}: tablet {tablet.tablet} of {table} rejects all reads and writes: {tablet.quarantine}"
                yield Fault(kind=FaultKind.QUARANTINE, server=name, table=table, what=what)
    if ahead > CLOCK_WARNING_SECONDS:
        yield Fault(
            kind=FaultKind.CLOCK_AHEAD,
            server=name,
            what=f"the timestamps of {who} are {ahead:,.1f} s ahead of the wall clock, or of another server",
            is_error=ahead > CLOCK_ERROR_SECONDS,
            next_step="correct its clock: see 'A clock that was ahead' in docs/servers.md",
        )


def _clocks_ahead(facts: Facts) -> dict[str, float]:
    """Return how many seconds each server is ahead at least: of its own wall clock, or of the earliest server."""
    earliest = min((each.clock_seconds[1] for each in facts.values()), default=0.0)
    return {
        name: max(each.health.clock_ahead_seconds, each.clock_seconds[0] - earliest, 0.0)
        for name, each in facts.items()
    }


def _of_agreement(facts: Facts) -> Iterator[Fault]:
    """Yield where servers run different programs, or would place new tablets differently."""
    versions = _by(facts, lambda each: each.health.version)
    if len(versions) > 1:
        told = "; ".join(f"{version or 'unknown'} on {', '.join(names)}" for version, names in versions.items())
        yield Fault(kind=FaultKind.VERSIONS, what=f"the servers have different versions: {told}", is_error=False)
    placed = _by(facts, _placing)
    if len(placed) > 1:
        told = " and ".join(", ".join(names) for names in placed.values())
        yield Fault(
            kind=FaultKind.PLACEMENT,
            what=f"{told} have different placement files: a new tablet may be created on two servers, or on none",
            next_step="give all servers the same file, and restart the servers that had another file",
        )


def _placing(each: ServerFacts) -> object:
    """Return what decides where a server puts new tablets; not where the others are reached."""
    if each.placement is None:
        return None
    return tuple(each.placement.servers), each.placement.model_dump_json(exclude={"servers"})


def _by(facts: Facts, of: Callable[[ServerFacts], object]) -> dict[object, list[str]]:
    """Return the servers by what a function says of them."""
    found: dict[object, list[str]] = defaultdict(list)
    for name, each in facts.items():
        found[of(each)].append(name)
    return found


# Tables


def _having(facts: Facts, table: str) -> dict[str, TableFacts]:
    return {name: each.tables[table] for name, each in facts.items() if table in each.tables}


def _table(table: str, facts: Facts, away: Sequence[str]) -> tuple[TableState, list[Fault]]:
    having = _having(facts, table)
    newest = max(having.values(), key=lambda each: each.about.schema_version)
    owners = _owners(facts, having)
    expected = list(newest.tablets.partitions.tablets())
    state = TableState(
        table=table,
        schema_version=newest.about.schema_version,
        tablets=len(expected),
        found=sum(len(owners[partition]) == 1 for partition in expected),
        servers={name: len(each.stats.tablets) for name, each in having.items()},
        rows=sum(each.stats.live_rows for each in having.values()),
        bytes=sum(each.stats.bytes_on_disk for each in having.values()),
    )
    if disagreement := _disagreement(table, having):
        return state, [disagreement]
    return state, list(_of_tablets(table, expected, owners, facts, away))


def _owners(facts: Facts, having: Mapping[str, TableFacts]) -> dict[TabletPartition, list[tuple[str, int]]]:
    owners: dict[TabletPartition, list[tuple[str, int]]] = defaultdict(list)
    for name, each in having.items():
        here = {None, *facts[name].health.processes}  # of a server of several processes
        for place in each.tablets.tablets:
            if place.server in here:
                owners[place.partition].append((name, place.tablet))
    return owners


def _disagreement(table: str, having: Mapping[str, TableFacts]) -> Fault | None:
    """Return how the servers' definitions of a table differ."""
    versions = {name: each.about.schema_version for name, each in having.items()}
    try:
        if len(set(versions.values())) > 1:
            raise half_altered(table, versions)
        same({name: each.about for name, each in having.items()})
    except ConflictError as error:
        kind = FaultKind.HALF_ALTERED if len(set(versions.values())) > 1 else FaultKind.TABLES_DIFFER
        return Fault(kind=kind, table=table, what=error.message)
    return None


def _of_tablets(
    table: str, expected: Sequence[TabletPartition], owners: Owners, facts: Facts, away: Sequence[str]
) -> Iterator[Fault]:
    missing: dict[tuple[str, ...], list[TabletPartition]] = defaultdict(list)
    for partition in expected:
        found = owners.get(partition, ())
        if not found:
            missing[_told_owners(table, partition, facts)].append(partition)
        elif len(found) > 1:
            named = " and ".join(f"{name} (tablet {number})" for name, number in found)
            yield Fault(
                kind=FaultKind.TABLET_DOUBLED,
                table=table,
                what=f"{_one(partition)} of table {table!r} is on {named}: scans of the table fail",
                next_step="stop writing to the table, and find out which server has its rows: run nyala scan with the "
                "--url of each server",
            )
    for told, partitions in missing.items():
        yield _of_missing(table, told, partitions, facts, away)
    if strange := owners.keys() - set(expected):
        where = sorted({name for partition in strange for name, _ in owners[partition]})
        what = f"{', '.join(where)} has tablets that table {table!r} does not have: {_several(list(strange))}"
        yield Fault(kind=FaultKind.TABLET_STRANGE, table=table, what=what)


def _told_owners(table: str, partition: TabletPartition, facts: Facts) -> tuple[str, ...]:
    """Return the servers that others name as the owners of a tablet."""
    told = {
        place.server
        for each in _having(facts, table).values()
        for place in each.tablets.tablets
        if place.partition == partition and place.server is not None
    }
    return tuple(sorted(told))


def _of_missing(
    table: str, told: Sequence[str], partitions: list[TabletPartition], facts: Facts, away: Sequence[str]
) -> Fault:
    named = _several(partitions)
    if gone := [name for name in told if name in away] or ([] if told else list(away)):
        what = f"table {table!r}: {named} cannot be reached, because {', '.join(gone)} does not answer"
        return Fault(kind=FaultKind.TABLET_AWAY, server=gone[0], table=table, what=what)
    lacking = [name for name, each in facts.items() if table not in each.tables]
    who = f"; {', '.join(lacking)} does not have the table" if lacking else ""
    said = f", although other servers report that {', '.join(told)} has it" if told else ""
    return Fault(
        kind=FaultKind.TABLET_MISSING,
        table=table,
        what=f"table {table!r}: {named} is on no server{said}{who}",
        next_step="repeat the create_table, alteration or drop_table that did not reach all servers",
    )


def _several(partitions: Sequence[TabletPartition]) -> str:
    more = len(partitions) - _NAMED_MAX
    return ", ".join(map(_one, partitions[:_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def _one(partition: TabletPartition) -> str:
    """Return a tablet in words."""
    ends = f"[{', '.join(map(str, partition.lower))}; {', '.join(map(str, partition.upper))})"
    parts = [f"the range {ends}"] if partition.lower or partition.upper else []
    parts += [f"bucket {', '.join(map(str, partition.buckets))}"] if partition.buckets else []
    return f"the tablet of {' and '.join(parts)}" if parts else "the only tablet"


# Moves


def _moves(table: str, having: Mapping[str, TableFacts]) -> Iterator[MoveState]:
    for name, each in having.items():
        for note in each.moves.arriving:
            yield MoveState(table=table, tablet=note.tablet, source=note.server, to=name, state="prepared")
        for note in each.moves.left:
            yield MoveState(table=table, tablet=note.tablet, source=name, to=note.server, state="handed_over")


def _of_move(move: MoveState) -> Fault:
    state = move.state.replace("_", " ")
    return Fault(
        kind=FaultKind.MOVE,
        table=move.table,
        what=f"tablet {move.tablet} of table {move.table!r} moves from {move.source} to {move.to}: {state}",
        is_error=False,
        next_step="if no `nyala tablet move` of this tablet is running, run the command again",
    )
