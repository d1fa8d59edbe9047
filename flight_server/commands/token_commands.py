"""``nyala token``: makes, lists and revokes the tokens of a server."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Annotated

import typer

from ...schemas.cells.timestamp import UNITS
from ...schemas.errors import InvalidArgumentError

app = typer.Typer(no_args_is_help=True, help="Create, list and revoke the tokens of a server.")

_AGE = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
File = Annotated[Path, typer.Option("--tokens", envvar="NYALA_TOKENS", help="The server's token file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("create")
def create(
    user: Annotated[str, typer.Argument(help="The user who logs in with the token.")],
    tokens: File,
    role: Annotated[list[str] | None, typer.Option(help="A role of the user; may be repeated.")] = None,
    expires_in: Annotated[
        str, typer.Option(help="How long the token is valid, such as 30d or 12h; or never.")
    ] = "365d",
    note: Annotated[str, typer.Option(help="A note on the purpose of the token.")] = "",
    json_output: Json = False,
) -> None:
    """Create a token and print it. It is shown only now: the file has only its hash."""
    from ..security.token_file import create_token

    token, entry = create_token(tokens, user, tuple(role or ()), _moment(expires_in), note)
    if json_output:
        typer.echo(json.dumps({"token": token, **entry.model_dump(mode="json", exclude={"sha256"})}))
        return
    typer.echo(token)
    until = f"until {entry.expires.isoformat()}" if entry.expires else "for ever"
    typer.echo(f"created the token {entry.id} of {user}, valid {until}; it is not shown again", err=True)


@app.command("list")
def list_tokens(tokens: File, json_output: Json = False) -> None:
    """Print the tokens of a file, without their secrets."""
    from ...clients.cli.output import print_table
    from ..security.token_file import read_tokens

    found = read_tokens(tokens).tokens
    if json_output:
        typer.echo(json.dumps([each.model_dump(mode="json", exclude={"sha256"}) for each in found]))
        return
    now = dt.datetime.now(dt.UTC)
    rows = [
        (each.id, each.user, ",".join(each.roles), _day(each.created), _until(each.expires, now), each.note)
        for each in found
    ]
    print_table(["id", "user", "roles", "created", "expires", "note"], rows)


@app.command("revoke")
def revoke(
    tokens: File,
    ids: Annotated[list[str] | None, typer.Argument(help="The ids of tokens.")] = None,
    user: Annotated[str | None, typer.Option(help="Revoke all tokens of this user.")] = None,
) -> None:
    """Revoke tokens: servers that use the file notice within a second, and end all requests with them."""
    from ..security.token_file import revoke_tokens

    if not ids and user is None:
        raise InvalidArgumentError("name the ids of tokens, or --user")
    for gone in revoke_tokens(tokens, frozenset(ids or ()), user):
        typer.echo(f"revoked the token {gone.id} of {gone.user}")


def _moment(text: str) -> dt.datetime | None:
    if text == "never":
        return None
    age = _AGE.fullmatch(text)
    if age is None:
        raise InvalidArgumentError(f"--expires-in {text!r} is not a time such as 30d or 12h, or never")
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    return now + dt.timedelta(seconds=int(age[1]) * UNITS[age[2]])


def _day(moment: dt.datetime) -> str:
    return moment.date().isoformat()


def _until(expires: dt.datetime | None, now: dt.datetime) -> str:
    if expires is None:
        return "never"
    return f"{expires.isoformat()}{' (expired)' if expires <= now else ''}"
