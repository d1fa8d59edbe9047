"""``nyala grant``: who may do what with which tables and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from .complete import one_of, tables
from .target import Target, takes_target

if TYPE_CHECKING:
    from ...schemas.store.grants import Grant

app = typer.Typer(no_args_is_help=True, help="Grant and revoke privileges on tables and columns, and list them.")

Grantee = Annotated[str, typer.Argument(help="The user; with --role, the role.")]
On = Annotated[
    str, typer.Argument(metavar="TABLE", help="The table; '*' in quotes is all tables.", autocompletion=tables)
]
Privileges = Annotated[
    list[str],
    typer.Argument(
        metavar="PRIVILEGE...",
        help="read, insert, update, delete, alter, maintain or admin.",
        autocompletion=one_of("read", "insert", "update", "delete", "alter", "maintain", "admin"),
    ),
]
IsRole = Annotated[bool, typer.Option("--role", help="GRANTEE is a role of tokens, not a user.")]
Column = Annotated[
    list[str] | None, typer.Option("--column", help="Only this column; repeatable.", show_default="all columns")
]


@app.command("add")
@takes_target()
def add(
    target: Target,
    grantee: Grantee,
    table: On,
    privileges: Privileges,
    is_role: IsRole = False,
    column: Column = None,
) -> None:
    """Grant privileges, and print what the user or role has.

    nyala grant add alice homes read insert
    """
    user, role = (None, grantee) if is_role else (grantee, None)
    with target.database() as db:
        _show(target, db.grant(privileges, table, user, role, column))


@app.command("revoke")
@takes_target()
def revoke(
    target: Target,
    grantee: Grantee,
    table: On,
    privileges: Privileges,
    is_role: IsRole = False,
    column: Column = None,
) -> None:
    """Take privileges back, and print what the user or role still has.

    nyala grant revoke alice homes insert
    """
    user, role = (None, grantee) if is_role else (grantee, None)
    with target.database() as db:
        _show(target, db.revoke(privileges, table, user, role, column))


@app.command("list")
@takes_target()
def list_grants(target: Target) -> None:
    """Print all grants; users who are not administrators see only their own."""
    with target.database() as db:
        _show(target, db.grants())


def _show(target: Target, grants: list[Grant]) -> None:
    from .output import print_table

    if target.prints_json([each.model_dump(mode="json") for each in grants]):
        return
    rows = [
        (each.user or "", each.role or "", each.table, str(each.privilege), ", ".join(each.columns or ()) or "all")
        for each in grants
    ]
    print_table(["user", "role", "table", "privilege", "columns"], rows)
