"""``nyala perf``: measures a server."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import typer

from ...schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError
from ...schemas.store.locations import DEFAULT_LOCATION
from .target import Json, Url

app = typer.Typer(no_args_is_help=True, help="Measure a server.")

Mix = Annotated[str, typer.Option(help="Operations with their weights: get, scan, sum, upsert, update and batch.")]


@app.command()
def loadgen(
    url: Url = None,
    mix: Mix = "get=80,upsert=20",
    clients: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of clients, each with its own connection.")
    ] = 8,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds for which clients send requests.")] = 10.0,
    rows: Annotated[int, typer.Option(min=1, help="Number of rows of the table.")] = 100_000,
    batch_rows: Annotated[int, typer.Option(min=1, help="Number of rows of a batch, and of a scan.")] = 1000,
    table: Annotated[str, typer.Option(help="Name of a new table, which is dropped at the end.")] = "nyala_loadgen",
    processes: Annotated[int, typer.Option(min=1, max=256, help="Number of processes that run the clients.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the random keys.")] = 1,
    json_output: Json = False,
) -> None:
    """Read and write a new table from many clients at once, and print rates and latencies.

    nyala perf loadgen --mix get=90,upsert=9,scan=1 --clients 32 --processes 4
    """
    from ..api.connect import connect
    from .loadgen import SCHEMA, Load, fill, measure, parse_mix

    load = Load(url or DEFAULT_LOCATION, table, rows, parse_mix(mix), seconds, clients, batch_rows, seed)
    if processes > clients:
        raise InvalidArgumentError(
            f"--clients {clients} is less than --processes {processes}: each process needs at least one client"
        )
    with connect(load.url) as db:
        try:
            made = db.create_table(table, SCHEMA, ["id"])
        except AlreadyPresentError:
            raise AlreadyPresentError(
                f"table {table!r} already exists: give the name of a new table with --table"
            ) from None
        try:
            fill(made, rows)
            found = measure(load, processes).report(seconds)
        finally:
            with suppress(NotFoundError):  # somebody else has dropped it
                db.drop_table(table)
    _print(found, json_output)


def _print(found: dict[str, dict[str, Any]], json_output: bool) -> None:
    from .output import print_json, print_table

    if json_output:
        print_json(found)
        return
    titles = ["operation", "count", "a second", "rows a second", "mean ms", "p50", "p95", "p99", "p99.9", "max"]
    print_table([*titles, "errors"], [_line(name, each) for name, each in found.items()])


def _line(name: str, each: dict[str, Any]) -> list[str]:
    times = [f"{each[key]:.3f}" for key in ("mean_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")]
    errors = ", ".join(f"{count:,} {code}" for code, count in each["errors"].items()) or "none"
    return [name, f"{each['count']:,}", f"{each['per_second']:,.0f}", f"{each['rows_per_second']:,.0f}", *times, errors]
