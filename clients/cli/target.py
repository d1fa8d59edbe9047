"""The database of a command: ``--url`` names a server, ``--data`` a store that the command opens itself, in a directory
or with ``--name`` in a bucket."""

import inspect
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...schemas.errors import InvalidArgumentError, NotFoundError, UnavailableError
from ...schemas.store.locations import DEFAULT_LOCATION
from .complete import tables
from .credentials import warn_of_token_file

if TYPE_CHECKING:
    from ..api.database import Database

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="NYALA_URL",
        help="The server's URL, or the URLs of all servers of a store, separated by commas.",
        show_default=DEFAULT_LOCATION,
    ),
]
Data = Annotated[
    str | None,
    typer.Option("--data", help="A data directory to open instead, or a bucket's URL; no server may have it open."),
]
StoreName = Annotated[str | None, typer.Option("--name", help="The name of the store in the bucket of --data.")]
ReadOnly = Annotated[
    bool,
    typer.Option("--read-only", help="Open the store of --data for reading only, also while a server has it."),
]
Name = Annotated[str, typer.Argument(help="The table.", autocompletion=tables)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Command = Callable[..., None]


@dataclass(frozen=True)
class Target:
    """The options of most commands: the database, and the form of the result. Each field is a parameter."""

    context: typer.Context
    url: Url = None
    data: Data = None
    store: StoreName = None
    json_output: Json = False

    def database(self, create: bool = False) -> "Database":
        """Return the database that ``--url`` or ``--data`` names. Raises as ``database``."""
        return database(self.context, self.url, self.data, self.store, create)

    @property
    def given(self) -> str:
        """The option that names the database, to repeat it in a next step; empty if the default is used."""
        if self.data:
            return f" --data {shlex.quote(self.data)}" + (f" --name {self.store}" if self.store else "")
        return f" --url {shlex.quote(self.url)}" if self.url else ""

    def prints_json(self, answer: Any) -> bool:
        """Print an answer as JSON, if ``--json`` is given; return whether it is."""
        if self.json_output:
            from .output import print_json

            print_json(answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer)
        return self.json_output


@dataclass(frozen=True)
class ReadTarget(Target):
    """The options of commands that only read."""

    read_only: ReadOnly = False

    def database(self, create: bool = False) -> "Database":
        return database(self.context, self.url, self.data, self.store, create, self.read_only)


def takes_target(*without: str) -> Callable[[Command], Command]:
    """Turn a function whose first parameter is a ``Target`` into a command: these options follow the function's own.

    ``without`` names the options that the command lacks.
    """

    def decorate(command: Command) -> Command:
        first, *own = inspect.signature(command, eval_str=True).parameters.values()
        context, *shared = inspect.signature(first.annotation, eval_str=True).parameters.values()
        taken = [parameter for parameter in shared if parameter.name not in without]
        taken.sort(key=lambda parameter: parameter.name in Target.__dataclass_fields__)

        @wraps(command)
        def called(**given: Any) -> None:
            options = {each.name: given.pop(each.name) for each in (context, *taken)}
            command(first.annotation(**options), **given)

        called.__signature__ = inspect.Signature([context, *own, *taken])  # pyright: ignore[reportAttributeAccessIssue]
        return called

    return decorate


def database(
    context: typer.Context,
    url: str | None,
    data: str | None,
    name: str | None = None,
    create: bool = False,
    read_only: bool = False,
) -> "Database":
    """Return the database that a command's options name, ``name`` being that of a store in a bucket; with ``create``,
    create a missing store; with ``read_only``, open one beside the process that may have it.

    ``--data`` on the command line beats ``NYALA_URL``. The context's object opens directories, since clients lack the
    engine.

    Raises:
        StoreError: both options are given, the store does not exist, or the database cannot be opened.
    """
    if data is None:
        if name is not None:
            raise InvalidArgumentError("--name selects a store in a bucket: also give the bucket's URL with --data")
        if read_only:
            raise InvalidArgumentError("--read-only works only with --data: a server decides itself who may write")
        from ..api.connect import connect

        warn_of_token_file()
        try:
            return connect(url or DEFAULT_LOCATION)
        except UnavailableError as error:
            if url:
                raise
            raise UnavailableError(
                f"{error.message} Start a server with `nyala serve --data DIR`, or give --url or --data"
            ) from None
    if url is not None and not _is_from_environment(context, "url"):
        raise InvalidArgumentError("give --url or --data, not both")
    how = {"read_only": True} if read_only else {"create": create}
    if "://" in data:
        return context.obj(data, name=name, **how)
    directory = Path(data)
    if directory.exists() and not directory.is_dir():
        raise InvalidArgumentError(f"{directory} is a file; --data must name the directory of a store")
    if not create and not directory.is_dir():
        raise NotFoundError(
            f"there is no directory {directory}: correct --data, or create a store with `nyala load --create` or "
            "`nyala serve`"
        )
    return context.obj(directory, name=name, **how)


def _is_from_environment(context: typer.Context, option: str) -> bool:
    source = context.get_parameter_source(option)
    return source is not None and source.name == "ENVIRONMENT"
