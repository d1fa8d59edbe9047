"""The database of a command: ``--url`` names a server, ``--data`` a directory that the command opens itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...schemas.errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from ..api.database import Database

DEFAULT_URL = "grpc://127.0.0.1:8815"

Url = Annotated[
    str | None, typer.Option("--url", envvar="NYALA_URL", help=f"The server's URL.  [default: {DEFAULT_URL}]")
]
Data = Annotated[
    Path | None, typer.Option("--data", help="A data directory to open instead; no server may have it open.")
]
Name = Annotated[str, typer.Argument(help="The table.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def database(context: typer.Context, url: str | None, data: Path | None, create: bool = False) -> Database:
    """Return the database that the options name; with ``create``, create a missing store.

    ``--data`` on the command line beats ``NYALA_URL``. The context's object opens directories, since clients lack the
    engine.

    Raises:
        StoreError: both options are given, the store does not exist, or the database cannot be opened.
    """
    if data is None:
        from ..api.connect import connect

        return connect(url or DEFAULT_URL)
    if url is not None and not _is_from_environment(context, "url"):
        raise InvalidArgumentError("give --url or --data, not both")
    if data.exists() and not data.is_dir():
        raise InvalidArgumentError(f"{data} is a file; --data must name the directory of a store")
    if not create and not data.is_dir():
        raise NotFoundError(f"there is no directory {data}; --data must name the directory of a store")
    return context.obj(data, create=create)


def _is_from_environment(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "ENVIRONMENT"
