"""The commands for stores in buckets. Each imports what it uses when it runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from .verify_report import print_report


def verified(url: str, name: str | None, json_output: bool) -> bool:
    """Verify the store in a bucket for the command ``nyala verify``, print the findings, and return whether all is
    sound."""
    from ...engine.home.opening import home_at
    from ...engine.recovery.verify_bucket import verify_bucket

    report = verify_bucket(home_at(url, name))
    if json_output:
        typer.echo(json.dumps(asdict(report)))
    else:
        print_report(report, "bring the objects back from a copy of the bucket")
    return report.is_sound


def sweep(
    url: Annotated[str, typer.Argument(help="The URL of a bucket.")],
    name: Annotated[str, typer.Option(help="The name of the store there; a server may have it.")],
    apply: Annotated[bool, typer.Option("--apply", help="Delete the objects; without this, only print them.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find objects in a bucket that a killed process left and that no store can ever need again."""
    from ...engine.home.opening import home_at
    from ...engine.recovery.sweep_bucket import leftovers
    from ...engine.recovery.sweep_bucket import sweep as swept

    home = home_at(url, name)
    found = swept(home) if apply else leftovers(home)
    free = [each for each in found if not each.in_use]
    if json_output:
        typer.echo(json.dumps({"deleted": apply, "objects": [asdict(each) for each in found]}))
        return
    for each in found:
        typer.echo(f"{each.size_bytes:>14,}  {each.name}{'  (in use)' if each.in_use else ''}")
    done = "deleted" if apply else "could be deleted, with --apply"
    typer.echo(f"{len(free):,} objects of {sum(each.size_bytes for each in free):,} bytes {done}")
    if len(free) < len(found):
        typer.echo(
            f"{len(found) - len(free):,} objects stay, because a process may still read or write them: stop the "
            "server, or end the copy, and run this command again"
        )
