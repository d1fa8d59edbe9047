"""``nyala sql``: runs statements of the command line, of a file or of a pipe, or opens the shell."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....schemas.errors import InvalidArgumentError, StoreError
from ....schemas.store.locations import DEFAULT_LOCATION
from ..options import AsOf, moment
from ..run import as_store_error
from ..target import Data, ReadOnly, StoreName, Url, database
from .form import SqlForm

if TYPE_CHECKING:
    from ...api.database import Database
    from .shell import Shell

SQL_FAILED = 1
"""The exit code if a statement or a command of the shell fails."""
NOT_OPENED = 3
"""The exit code if no server answers, or the store cannot be opened."""
_SERVER = re.compile(r"(?:grpc|http)[\w+]*://.*|(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):\d{1,5}(?:,.*)?")


def sql(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE", help="The directory of a store, or the URL or host:port of a server.", show_default=False
        ),
    ] = None,
    command: Annotated[list[str] | None, typer.Option("--command", "-c", help="Run this. May be repeated.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Run a file; - is standard input."),
    ] = None,
    form: Annotated[
        SqlForm | None,
        typer.Option("--format", help="The form of rows.", show_default="that of the suffix of --output, else table"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", dir_okay=False, help="Write rows to a file: .parquet .csv .arrow .jsonl, or see --format"
        ),
    ] = None,
    as_of: AsOf = None,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="The most seconds of a statement.")] = None,
    url: Url = None,
    data: Data = None,
    store: StoreName = None,
    read_only: ReadOnly = False,
) -> None:
    """Run statements in SQL, or open a shell for them (docs/sql.md).

    Without --command and --file, statements come from standard input; if that is a terminal, from whoever types.

    nyala sql localhost:8815 -c "SELECT count(*) FROM homes"

    Exit codes: 1 if a statement fails, 2 if the command line is wrong, 3 if no server answers or the store cannot be
    opened.
    """
    if command and file:
        raise typer.BadParameter("give --command or --file, not both")
    if file is not None and str(file) != "-" and (not file.exists() or file.is_dir()):
        raise typer.BadParameter(f"there is no file {file}")
    texts = command is not None or file is not None or not sys.stdin.isatty()
    if not texts and not sys.stdout.isatty():
        raise typer.BadParameter("give statements with --command or --file: the output is not a terminal for a shell")
    _check_modules(is_typed=not texts)
    from .shell import Shell
    from .sink import RowSink

    if target is not None:
        if data is not None or (url is not None and _is_given(context, "url")):
            raise typer.BadParameter("give only one of STORE, --url and --data")
        if re.search(r"\s", target) and not Path(target).exists():
            raise typer.BadParameter(f"{target!r} is not a store; if it is a statement, give it with --command")
        url, data = (target, None) if _is_server(target) else (None, target)
    try:
        sink, snapshot = RowSink(form, output), moment(as_of)
    except InvalidArgumentError as error:
        raise typer.BadParameter(error.message) from None
    with (
        _opened(context, url, data, store, read_only) as db,
        Shell(db, sink, snapshot, timeout, is_timed=not texts) as shell,
    ):
        if texts:
            _run(shell, command or [], file)
        else:
            _interact(shell, _name(url, data, store))


def _run(shell: Shell, commands: list[str], file: Path | None) -> None:
    """Run texts one after the other. Raises Exit: one failed."""
    from .shell import LeaveShell

    try:
        texts = [(text, "") for text in commands] or [_script(file)]
        is_well = all(shell.run(text, origin) for text, origin in texts)
    except LeaveShell:
        return
    except (StoreError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        _tell(as_store_error(error))
        is_well = False
    if not is_well:
        raise typer.Exit(SQL_FAILED)


def _script(file: Path | None) -> tuple[str, str]:
    """Return the text of a script and the name of where it is from. Raises InvalidArgumentError: it is no text."""
    from .shell import read_script

    if file is not None and str(file) != "-":
        return read_script(file), file.name
    try:
        return sys.stdin.read(), "standard input"
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"standard input is not text in UTF-8: its byte {error.start} is wrong") from None


def _interact(shell: Shell, name: str) -> None:
    from .prompt import interact

    typer.echo("\\? shows the commands, \\q leaves.")
    interact(shell, name)


def _opened(context: typer.Context, url: str | None, data: str | None, store: str | None, read_only: bool) -> Database:
    """Return the database that the options name. Raises BadParameter and Exit, with what is wrong."""
    try:
        return database(context, url, data, store, read_only=read_only)
    except InvalidArgumentError as error:
        raise typer.BadParameter(error.message) from None
    except StoreError as error:
        _tell(error)
        raise typer.Exit(NOT_OPENED) from None


def _tell(error: StoreError) -> None:
    typer.secho(f"{error.code}: {error.message}", fg=typer.colors.RED, err=True)


def _is_given(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _is_server(target: str) -> bool:
    """Return whether an argument names a server: what exists as a directory does not."""
    return _SERVER.fullmatch(target) is not None and not Path(target).is_dir()


def _name(url: str | None, data: str | None, store: str | None) -> str:
    """Return the name of a store for the prompt."""
    if data is not None:
        return store or Path(data).resolve().name
    return (url or DEFAULT_LOCATION).partition(",")[0].partition("://")[2] or (url or "")


def _check_modules(is_typed: bool) -> None:
    """Raise ModuleNotFoundError if a library is missing that the extra ``sql`` installs."""
    for module in ("datafusion", "sqlglot", *(("prompt_toolkit",) if is_typed else ())):
        if find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
