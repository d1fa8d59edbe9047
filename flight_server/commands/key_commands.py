"""``nyala key``: makes the keys of encrypted stores, changes that of a store, and shows which one it has."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ...schemas.errors import AlreadyPresentError, InvalidArgumentError, NotFoundError

app = typer.Typer(no_args_is_help=True, help="Create, change and show the keys of encrypted stores.")

_MODE = 0o600
Directory = Annotated[Path, typer.Argument(help="A data directory.")]


@app.command("create")
def create(file: Annotated[Path, typer.Argument(help="The new key file; keep a copy elsewhere.")]) -> None:
    """Create a random key in a new file. Keep a copy: without the key, the data of its stores is lost."""
    from ...engine.fs.encryption.key_source import new_key
    from ...engine.fs.local import LocalFileSystem

    key = new_key()
    beside = file.with_name(f"{file.name}.{os.getpid()}.new")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE), "w") as written:
            try:
                written.write(key.text)
                written.flush()
                os.fsync(written.fileno())
                os.link(beside, file)  # a whole key or none has the name, and never that of another file
            finally:
                beside.unlink()
        LocalFileSystem(file.absolute().parent).sync_directory("")
    except FileExistsError:
        raise AlreadyPresentError(f"{file} already exists: a key is never overwritten; choose another name") from None
    except OSError as error:
        raise InvalidArgumentError(f"{file} cannot be written: {error.strerror}") from None
    typer.echo(key.id)


@app.command("rotate")
def rotate(
    directory: Directory,
    new_key_file: Annotated[str | None, typer.Option(help="A file with the new key.")] = None,
    new_key_command: Annotated[str | None, typer.Option(help="A shell command that prints the new key.")] = None,
    key_file: Annotated[str | None, typer.Option(help="A file with the store's key; also by NYALA_KEY_FILE.")] = None,
    key_command: Annotated[
        str | None, typer.Option(help="A shell command that prints it; also by NYALA_KEY_COMMAND.")
    ] = None,
) -> None:
    """Give a stopped store another key. Only its file of keys is written; repeat it if it was interrupted."""
    from ...engine.fs.encryption.key_source import KeySource
    from ...engine.fs.encryption.keyring import rotate_keyring
    from ...engine.fs.local import LocalFileSystem
    from ...engine.fs.store_lock import STORE_LOCK

    new, old = KeySource(new_key_file, new_key_command).read({}), KeySource(key_file, key_command).read()
    if new is None or old is None:
        missing = "--new-key-file or --new-key-command" if new is None else "--key-file or --key-command"
        raise InvalidArgumentError(f"the {'new' if new is None else 'current'} key is missing: give {missing}")
    for part in _encrypted_parts(directory):
        fs = LocalFileSystem(part)
        with fs.lock(STORE_LOCK):
            rotate_keyring(fs, old, new)
        typer.echo(f"{part} now has the key {new.id}")


@app.command("status")
def status(
    directory: Directory, json_output: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Print the id of a store's key, and how many own keys the store has: one, and one more for each rotation."""
    from ...engine.fs.encryption.keyring import read_keys
    from ...engine.fs.local import LocalFileSystem

    for part in _encrypted_parts(directory):
        keys = read_keys(LocalFileSystem(part))
        told = {"directory": str(part), "key": keys.store_key, "own_keys": len(keys.keys)}
        typer.echo(
            json.dumps(told) if json_output else f"{part}: store key {keys.store_key}, own keys: {told['own_keys']}"
        )


def _encrypted_parts(directory: Path) -> list[Path]:
    """Return the directories of a store's processes. Raises InvalidArgumentError if one is not encrypted."""
    from ...engine.fs.encryption.opening import is_encrypted
    from ...engine.fs.local import LocalFileSystem
    from ..processes.layout import ProcessLayout

    if not directory.is_dir():
        raise NotFoundError(f"there is no directory {directory}")
    layout = ProcessLayout(directory.absolute())
    parts = list(layout.directories().values())
    for part in parts:
        if not is_encrypted(LocalFileSystem(part)):
            raise InvalidArgumentError(f"the store in {part} is not encrypted")
    # A crash may have left one that has keys and no manifest yet: the next start goes on with it.
    return parts + [part for part in layout.begun() if is_encrypted(LocalFileSystem(part))]
