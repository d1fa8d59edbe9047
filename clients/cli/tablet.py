"""``nyala tablet``: where the tablets of a table are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from .target import Data, Json, Name, Url, database

if TYPE_CHECKING:
    from ...schemas.partition_schema import TabletPartition

app = typer.Typer(no_args_is_help=True, help="See where the tablets of a table are.")


@app.command("list")
def list_tablets(
    context: typer.Context, name: Name, url: Url = None, data: Data = None, json_output: Json = False
) -> None:
    """Print the tablets of a table, what they hold and which server has them."""
    from .output import print_json, print_table

    with database(context, url, data) as db:
        found = db.table(name).tablets()
    if json_output:
        print_json([place.model_dump(mode="json") for place in found])
        return
    rows = [(str(place.tablet), place.server or "", *_shown(place.partition)) for place in found]
    print_table(["tablet", "server", "from", "up to", "buckets"], rows)


def _shown(partition: TabletPartition) -> tuple[str, str, str]:
    def words(cells: tuple[Any, ...]) -> str:
        return ", ".join(map(str, cells))

    return words(partition.lower), words(partition.upper), words(partition.buckets)
