"""Tools for a store that is not open: verify, repair and dump, and warmup. Each imports what it uses when it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...schemas.errors import CorruptionError, NotFoundError
from ..runtime.opening import key_source
from ..serve.options import KeyCommand, KeyFile
from .serve_command import Json
from .verify_report import print_report

if TYPE_CHECKING:
    from ...engine.fs.encryption.key_source import KeySource
    from ...engine.recovery.repair import RepairReport

Backup = Annotated[
    str | None,
    typer.Option("--from-backup", help="A folder of `nyala job backup`, to recover rows that no intact file has."),
]


def warmup(json_output: Json = False) -> None:
    """Compile all kernels ahead of their first use, unless they are compiled already; print their processor level."""
    from rich.console import Console
    from rich.progress import Progress

    from ...engine.kernels.compile.making import ensure_library

    with Progress(console=Console(stderr=True), transient=True, disable=json_output) as progress:
        task = progress.add_task("kernels", total=None)

        def show(done: int, total: int, name: str) -> None:
            progress.update(task, completed=done, total=total, description=name)

        ensure_library(show)
        from ...engine.kernels.compile.warmup import (  # not before: the first kernel's import looks for the library
            warm_up,
        )

        count = warm_up(show)
        from ...engine.kernels.ahead.library import library
    found = library()
    level = found.level if found else None
    words = f"{count} kernels are ready ({level or 'compiled on use'})"
    typer.echo(json.dumps({"kernels": count, "level": level}) if json_output else words)


def verify(
    directory: Annotated[str, typer.Argument(help="A data directory, or a bucket's URL; no server may have it open.")],
    name: Annotated[str | None, typer.Option(help="The name of the store in a bucket.")] = None,
    from_backup: Backup = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    json_output: Json = False,
) -> None:
    """Check every byte of a store, offline, and print what a repair could save; exit with 1 if anything is wrong."""
    if "://" in directory:
        from .bucket_commands import verified

        sound = [verified(directory, name, json_output)]
    else:
        key = key_source(key_file, key_command)
        sound = [_verified(part, from_backup, key, json_output) for part in _parts(Path(directory))]
    if not all(sound):
        raise typer.Exit(1)


def _verified(directory: Path, from_backup: str | None, key: KeySource, json_output: bool) -> bool:
    """Verify one directory, print the findings, and return whether all is sound."""
    from ...engine.fs.encryption.opening import store_files
    from ...engine.recovery.verify import verify_store

    report = verify_store(store_files(directory, key))
    found: RepairReport | None = None
    why = ""
    if not report.is_sound:
        try:
            found = _repaired(directory, False, from_backup, key)
        except CorruptionError as error:
            why = error.message
    if json_output:
        typer.echo(json.dumps({**asdict(report), "repair": asdict(found) if found else None}))
    else:
        print_report(report, "`nyala repair` could do this:")
        if found:
            _print_repairs(found, directory, from_backup)
        elif why:
            typer.echo(why)
    return report.is_sound


def _parts(directory: Path) -> Iterator[Path]:
    """Yield the directory of a store, or of each of the processes that serve it, which are printed then.

    Raises:
        NotFoundError: there is no such directory.
    """
    from ..processes.layout import ProcessLayout

    parts = ProcessLayout(_existing(directory).absolute()).directories()
    for name, part in parts.items():
        if len(parts) > 1:
            typer.echo(f"the process {name}, in {part}:", err=True)
        yield part if len(parts) > 1 else directory


def repair(
    directory: Annotated[Path, typer.Argument(help="A data directory; no server may have it open.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply the repair; without this, only print the plan.")
    ] = False,
    from_backup: Backup = None,
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
    json_output: Json = False,
) -> None:
    """Repair damaged files, offline, and print what is lost; exit with 1 while something needs repair.

    Without --apply, only prints the plan. The old files are kept under damaged/.
    """
    is_needed = False
    for part in _parts(directory):
        report = _repaired(part, apply, from_backup, key_source(key_file, key_command))
        is_needed |= report.is_needed and not report.is_applied
        if json_output:
            typer.echo(json.dumps(asdict(report)))
        else:
            _print_repairs(report, part, from_backup)
    if is_needed:
        raise typer.Exit(1)


def _repaired(directory: Path, apply: bool, from_backup: str | None, key: KeySource) -> RepairReport:
    from ...engine.fs.encryption.key_source import new_key
    from ...engine.fs.encryption.opening import is_encrypted, store_files
    from ...engine.recovery.repair import repair_store
    from .backups import FolderBackups

    fs = store_files(directory, key)
    if from_backup is None:
        return repair_store(fs, apply)
    with FolderBackups(from_backup, new_key() if is_encrypted(fs) else None) as backups:
        return repair_store(fs, apply, backups)


def _print_repairs(report: RepairReport, directory: Path, from_backup: str | None) -> None:
    from ...clients.cli.output import print_table
    from .repair_words import TITLES, lines, row

    if report.repairs:
        print_table(TITLES, [row(each) for each in report.repairs])
    for line in lines(report, str(directory), from_backup):
        typer.echo(line)


def dump(
    file: Annotated[Path, typer.Argument(help="A file of a store: column file, log segment or manifest.")],
    key_file: KeyFile = None,
    key_command: KeyCommand = None,
) -> None:
    """Print the contents of a store's file as JSON."""
    from ...engine.recovery.dump import dump_file

    typer.echo(json.dumps(dump_file(_existing(file), key_source(key_file, key_command)), indent=2, default=str))


def _existing(path: Path) -> Path:
    if not path.exists():
        raise NotFoundError(f"{path} does not exist")
    return path
