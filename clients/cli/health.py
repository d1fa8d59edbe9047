"""``nyala health``: whether a server, or a store, accepts writes."""

from __future__ import annotations

import datetime as dt

import typer

from .run import FINDINGS
from .target import Target, takes_target


@takes_target()
def health(target: Target) -> None:
    """Print a server's health: ok, or what is wrong; exit with 1 unless ok."""
    with target.database() as db:
        found = db.health()
    if not target.prints_json(found):
        typer.echo(f"{found.status}, version {found.version}" + (f": {found.reason}" if found.reason else ""))
        for file in found.damaged:
            where = f"tablet {file.tablet} of {file.table}" if file.table else "no table"
            state = ", in quarantine" if file.is_quarantined else ""
            typer.echo(f"damaged: {file.path} ({where}{state}): {file.why}; {file.next_step}")
        for work in found.failing:
            of = f" of {work.table}" if work.table else ""
            since = dt.datetime.fromtimestamp(work.since, dt.UTC).isoformat(timespec="seconds")
            typer.echo(f"failing: {work.name}{of}, since {since}, failures: {work.failures:,}: {work.error}")
    if found.status != "ok":
        raise typer.Exit(FINDINGS)
