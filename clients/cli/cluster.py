"""``nyala cluster``: checks all servers that share their tables, and balances them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...schemas.errors import InvalidArgumentError
from ...schemas.phrases import counted
from .options import AsOf, Runs, Workers, moment, names
from .run import FINDINGS
from .target import Json, Url, database

if TYPE_CHECKING:
    from ..api.database import Database
    from ..cluster.upkeep.balance_report import BalancePlan
    from ..cluster.upkeep.check_report import ProcessState, ServerState
    from ..jobs.backup.check_job import ClusterCheck

app = typer.Typer(no_args_is_help=True, help="Check all servers that share their tables, and balance them.")

PlacementFile = Annotated[
    Path | None, typer.Option("--placement", help="The placement file of the servers, instead of --url.")
]


@app.command("check")
def check(
    context: typer.Context,
    placement: PlacementFile = None,
    checksums: Annotated[
        bool, typer.Option("--checksums", help="Also read all rows at one snapshot, and print their checksums.")
    ] = False,
    as_of: AsOf = None,
    compare: Annotated[
        Path | None,
        typer.Option(help="The --json output of an earlier check with --checksums: compare all rows with it."),
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the answers of servers.")] = 30.0,
    executor: Runs = "local",
    workers: Workers = None,
    url: Url = None,
    json_output: Json = False,
) -> None:
    """Check servers, clocks, tables and tablets, and print what is wrong; exit with 1 if anything is an error."""
    from ..jobs.backup.check_job import check_cluster
    from .output import print_json

    earlier = _earlier(compare)
    with _cluster(context, url, placement) as db:
        found = check_cluster(
            db,
            checksums=checksums,
            as_of=moment(as_of),
            compare=earlier,
            timeout_seconds=timeout,
            executor=executor,
            workers=workers,
            show="lines",
        )
    if json_output:
        print_json({"is_healthy": found.is_healthy, **found.model_dump(mode="json")})
    else:
        _print_check(found)
    if not found.is_healthy:
        raise typer.Exit(FINDINGS)


@app.command("balance")
def balance(
    context: typer.Context,
    placement: PlacementFile = None,
    apply: Annotated[bool, typer.Option("--apply", help="Make the moves; without this, only print them.")] = False,
    by: Annotated[
        str, typer.Option(help="Comma-separated measures to balance: tables, bytes, tablets, reads, writes.")
    ] = "tables,bytes,tablets,reads,writes",
    margin: Annotated[
        float, typer.Option(min=0, help="Skip moves that gain less than this share of a server's load.")
    ] = 0.05,
    max_moves: Annotated[int | None, typer.Option(min=0, help="Make at most this many moves.")] = None,
    tables: Annotated[
        str | None, typer.Option("--tables", help="Comma-separated tables that may move.", show_default="all")
    ] = None,
    watch: Annotated[
        float, typer.Option(min=0, help="Measure reads and writes for this many seconds; 0 ignores them.")
    ] = 0.0,
    url: Url = None,
    json_output: Json = False,
) -> None:
    """Plan a balanced placement of tablets; --apply makes the moves, one at a time.

    Reads and writes continue. Ctrl-C stops it; run it again to go on.
    """
    from ..jobs.balance_job import apply_balance, plan_balance
    from .output import print_json

    with _cluster(context, url, placement) as db:
        plan = plan_balance(
            db,
            by=names(by),
            margin=margin,
            moves_max=max_moves,
            tables=names(tables) if tables else None,
            watch_seconds=watch,
        )
        if not json_output:
            _print_plan(plan, apply)
        skipped = apply_balance(db, plan, show="lines") if apply else []
    if json_output:
        left_out = [each.model_dump(mode="json") for each in skipped]
        print_json({"applied": apply, **plan.model_dump(mode="json"), "skipped": left_out})
    elif apply and plan.moves:
        typer.echo(f"made {len(plan.moves) - len(skipped)} of {counted(len(plan.moves), 'move')}")
        for each in skipped:
            typer.echo(f"left out: tablet {each.move.tablet} of {each.move.table}: {each.why}")


def _cluster(context: typer.Context, url: str | None, placement: Path | None) -> Database:
    """Return the database of all servers. Raises InvalidArgumentError if both options are given."""
    if placement is None:
        return database(context, url, None)
    source = context.get_parameter_source("url")
    if url is not None and source is not None and source.name == "COMMANDLINE":
        raise InvalidArgumentError("give --url or --placement, not both")
    from ..api.connect import connect

    return connect(placement=placement)


def _earlier(path: Path | None) -> ClusterCheck | None:
    """Return an earlier check from its file. Raises InvalidArgumentError if it is none."""
    if path is None:
        return None
    from pydantic import ValidationError

    from ..jobs.backup.check_job import ClusterCheck

    try:
        return ClusterCheck.model_validate_json(path.read_bytes())
    except ValidationError:
        raise InvalidArgumentError(f"{path} is not the output of nyala cluster check --checksums --json") from None


def _print_check(found: ClusterCheck) -> None:
    from .output import print_table

    titles = ["server", "state", "version", "tablets", "bytes", "free on disk", "clock ahead", "location"]
    print_table(titles, [_server_row(each) for each in found.servers])
    if processes := [(each.server, process) for each in found.servers for process in each.processes]:
        typer.echo()
        rows = [(name, each.state, _text(each.slots_behind), _age(each), each.location) for name, each in processes]
        print_table(["server", "process", "slots behind", "newest seen", "location"], rows)
    if found.tables:
        typer.echo()
        rows = [
            (
                each.table,
                str(each.schema_version),
                f"{each.found} of {each.tablets}",
                f"{each.rows:,}",
                f"{each.bytes:,}",
                ", ".join(f"{name}: {count}" if name else str(count) for name, count in each.servers.items()),
            )
            for each in found.tables
        ]
        print_table(["table", "version", "tablets", "rows", "bytes", "on"], rows)
    if found.checksums:
        typer.echo()
        rows = [
            (each.table, tablet.server or "", str(tablet.tablet), f"{tablet.rows:,}", tablet.checksum)
            for each in found.checksums
            for tablet in each.tablets
        ]
        rows += [(each.table, "", "all", f"{each.rows:,}", each.checksum) for each in found.checksums]
        print_table(["table", "server", "tablet", "rows", f"checksum as of {found.snapshot}"], rows)
    typer.echo()
    for fault in found.faults:
        typer.echo(f"{'ERROR' if fault.is_error else 'warning'}: {fault.what}" + _then(fault.next_step))
    errors = sum(fault.is_error for fault in found.faults)
    summary = f"{counted(len(found.servers), 'server')}, {counted(len(found.tables), 'table')}"
    typer.echo(f"not healthy: {counted(errors, 'error')}; {summary}" if errors else f"healthy: {summary}")


def _server_row(each: ServerState) -> tuple[str, ...]:
    answered = each.state not in ("away", "failed")
    free = "" if each.disk_free_bytes is None else f"{each.disk_free_bytes:,}"
    counts = (f"{each.tablets:,}", f"{each.bytes:,}", free, f"{each.clock_ahead_seconds:.1f} s")
    known = counts if answered else ("",) * len(counts)
    return each.server, each.state, each.version, *known, ", ".join(each.locations)


def _text(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _age(each: ProcessState) -> str:
    seen = "" if each.age_seconds is None else f"{each.age_seconds:.1f} s ago"
    return seen if each.lag_seconds is None else f"{seen}, reads {each.lag_seconds:.1f} s behind"


def _then(next_step: str) -> str:
    return f"; {next_step}" if next_step else ""


def _print_plan(plan: BalancePlan, apply: bool) -> None:
    from .output import print_table

    after = {each.server: each for each in plan.after}
    rows = [
        (
            old.server,
            f"{old.share:.1%}",
            f"{old.tablets:,}",
            f"{after[old.server].tablets:,}",
            f"{old.bytes:,}",
            f"{after[old.server].bytes:,}",
        )
        for old in plan.before
    ]
    print_table(["server", "share", "tablets", "after", "bytes", "after"], rows)
    if not plan.moves:
        typer.echo("balanced: no move is worth it")
        return
    typer.echo()
    moves = [(each.table, str(each.tablet), each.source, each.to, f"{each.bytes:,}") for each in plan.moves]
    print_table(["table", "tablet", "from", "to", "bytes"], moves)
    for name, before in plan.deviation_before.items():
        typer.echo(
            f"{name}: {before:.1%} away from an even distribution, {plan.deviation_after[name]:.1%} after the moves"
        )
    typer.echo(f"{counted(len(plan.moves), 'move')}, {plan.bytes:,} bytes" + ("" if apply else "; --apply makes them"))
