"""``nyala top``: what a server does now, from its metrics, again and again."""

from __future__ import annotations

import sys
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.errors import UnavailableError
from ...schemas.store.description import Health
from .target import Json, Url, database

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...schemas.store.metrics import Metrics
    from ..api.database import Database
    from .activity import Section

Interval = Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between updates.")]


def top(
    context: typer.Context,
    interval: Interval = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one interval, and exit.")] = False,
    url: Url = None,
    json_output: Json = False,
) -> None:
    """Show a server's requests, latencies, log, memory, maintenance and largest tables, live; Ctrl-C ends it.

    Away from a terminal, and with --json, it prints one picture.
    """
    with database(context, url, None) as db:
        if once or json_output or not sys.stdout.isatty():
            _print(db, interval, json_output)
            return
        try:
            _live(db, interval)
        except KeyboardInterrupt:
            return


def _print(db: Database, interval: float, json_output: bool) -> None:
    from .activity import activity, sections
    from .output import print_json, print_table

    before, began = db.metrics(), monotonic()
    sleep(interval)
    found = activity(before, db.metrics(), monotonic() - began)
    health = db.health()
    if json_output:
        print_json({"status": health.status, "reason": health.reason, "version": health.version, **found})
        return
    typer.echo(_headline(health))
    for section in sections(found):
        typer.echo()
        print_table(section.titles, section.rows)


def _headline(health: Health) -> str:
    return f"{health.status}, version {health.version}" + (f": {health.reason}" if health.reason else "")


def _live(db: Database, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from .activity import activity, sections

    before: tuple[Metrics, float] | None = None
    with Live(Text("measuring ..."), screen=True, auto_refresh=False) as live:
        while True:
            try:
                metrics, now, health = db.metrics(), monotonic(), db.health()
                if before is not None:
                    found = activity(before[0], metrics, now - before[1])
                    live.update(_drawn(_headline(health), sections(found)), refresh=True)
                before = metrics, now
            except UnavailableError as error:  # it may come back
                before = None
                live.update(Text(error.message, style="red"), refresh=True)
            sleep(interval)


def _drawn(headline: str, shown: list[Section]) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = [Text(headline, style="bold")]
    for section in shown:
        table = Table(box=None, header_style="bold", pad_edge=False)
        for number, title in enumerate(section.titles):
            table.add_column(title, justify="right" if number else "left", no_wrap=True)
        for row in section.rows:
            table.add_row(*(Text(cell) for cell in row))
        parts += [Text(), table]
    return Group(*parts)
