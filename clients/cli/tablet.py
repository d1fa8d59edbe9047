"""``nyala tablet``: lists the tablets of a table and their servers, and moves them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from .target import Name, Target, Url, database, takes_target

if TYPE_CHECKING:
    from ...schemas.table.partition_schema import TabletPartition

app = typer.Typer(no_args_is_help=True, help="List the tablets of a table and move them between servers.")


@app.command("list")
@takes_target()
def list_tablets(target: Target, name: Name) -> None:
    """Print the tablets of a table, their contents and their servers."""
    from .output import print_table

    with target.database() as db:
        found = db.table(name).tablets()
    if target.prints_json([place.model_dump(mode="json") for place in found]):
        return
    rows = [(str(place.tablet), place.server or "", *_shown(place.partition)) for place in found]
    print_table(["tablet", "server", "from", "up to", "buckets"], rows)


@app.command("move")
def move_tablet(
    context: typer.Context,
    name: Name,
    tablet: Annotated[int, typer.Argument(help="The tablet's number on its server, from `nyala tablet list`.")],
    to: Annotated[str, typer.Option("--to", help="The target server's name in the placement.")],
    server: Annotated[
        str | None, typer.Option("--from", help="The source server's name, if several have a tablet of this number.")
    ] = None,
    url: Url = None,
) -> None:
    """Move a tablet to another server while it is in use. Resumes an interrupted move."""
    from ..api.progress import LoadProgress

    with database(context, url, None) as db, LoadProgress(f"move tablet {tablet}", None) as shown:
        db.move_tablet(name, tablet, to, server, shown.reach)
    typer.echo(f"tablet {tablet} of {name} is on {to}")


def _shown(partition: TabletPartition) -> tuple[str, str, str]:
    def words(cells: tuple[Any, ...]) -> str:
        return ", ".join(map(str, cells))

    return words(partition.lower), words(partition.upper), words(partition.buckets)
