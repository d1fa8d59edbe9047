"""``nyala checkpoint``: a copy of a running store, as a store of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .target import Target, takes_target

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        help="A directory on the server's machine: new, empty, or with an earlier checkpoint.",
        show_default=False,
    ),
]


@takes_target()
def checkpoint(target: Target, directory: Directory) -> None:
    """Copy a running store, as it is now, into a directory of its machine; a later run copies only what is new.

    Column files become hard links where the disk allows it. The copy is a store: nyala serve --data DIR opens it.
    """
    with target.database() as db:
        done = db.checkpoint(directory.absolute())
    if target.prints_json(done):
        return
    typer.echo(f"{done.directory} has the store as of {done.timestamp}")
    copied = f", {done.copied:,} copied ({done.bytes_copied:,} bytes)" if done.copied else ""
    files = f"{done.files:,} column files ({done.bytes:,} bytes): {done.linked:,} newly linked{copied}"
    typer.echo(f"{files}; a log of {done.log_bytes:,} bytes")
