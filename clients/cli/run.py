"""Runs a command line: an error is one line on standard error and an exit code, never a traceback."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Mapping
from traceback import walk_tb

import typer
from pydantic import ValidationError

from ...schemas.errors import (
    AlreadyPresentError,
    ConflictError,
    CorruptionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    SnapshotTooOldError,
    StorageFullError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
    WrongServerError,
)
from ...schemas.protocol.command import explain

FINDINGS = 1
"""The command worked and found something: refused rows, different tables, damaged bytes."""
INTERRUPTED = 130
EXIT_CODES: Mapping[str, int] = {
    InvalidArgumentError.code: 3,
    NotFoundError.code: 4,
    AlreadyPresentError.code: 5,
    ConflictError.code: 6,
    WrongServerError.code: 6,
    SnapshotTooOldError.code: 7,
    UnauthenticatedError.code: 8,
    PermissionDeniedError.code: 8,
    UnavailableError.code: 9,
    StorageFullError.code: 10,
    CorruptionError.code: 11,
    InternalError.code: 12,
}
"""The exit code for each error code; docs/cli-reference.md has the table for users."""

_ERRNO = re.compile(r"^\[Errno \d+\] ")
_EXTRAS = {
    "pyspark": "spark",
    "jwt": "auth",
    "cryptography": "auth",
    "xxhash": "servers",
    "psycopg2": "postgres",
    "adbc_driver_postgresql": "postgres",
    "confluent_kafka": "kafka",
    "fastavro": "kafka",
} | dict.fromkeys(("datafusion", "sqlglot", "prompt_toolkit"), "sql")
"""The extra that installs a module; all other modules come with ``server``, as ``xxhash`` does, too."""
_OF_SERVER = ("nyala.flight_server.", "nyala.engine.")


def run(app: Callable[[], object]) -> None:
    """Run the commands of a typer application and exit: 0 for success, else a constant of this module."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # typer then exits with 1
            _output_is_closed()
        raise
    except BrokenPipeError:
        _output_is_closed()
    except Exception as error:
        known = as_store_error(error)
        typer.secho(f"{known.code}: {known.message}", fg=typer.colors.RED, err=True)
        sys.exit(EXIT_CODES.get(known.code, EXIT_CODES[InternalError.code]))


def _output_is_closed() -> None:
    """Exit without an error: the reader closed our output. What Python flushes at exit goes to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    sys.exit(0)


def as_store_error(error: Exception) -> StoreError:
    """Return any exception of a command as the error that the user of the command line sees."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, ValidationError):
        return InvalidArgumentError(explain(error, error.title))
    import pyarrow as pa

    text = _ERRNO.sub("", str(error).partition("\n")[0].partition(". Detail: ")[0])
    if isinstance(error, ModuleNotFoundError):
        return UnavailableError(
            f"the module {error.name} is missing; install it with: pip install 'nyala[{_extra(error)}]'"
        )
    if isinstance(error, OSError):
        return _of_system(error, text)
    if isinstance(error, pa.ArrowException | ValueError):
        return InvalidArgumentError(text)
    return InternalError(f"{type(error).__name__}: {error}")


def _extra(error: ModuleNotFoundError) -> str:
    """Return the extra that installs a module for the command that lacks it: a server and an engine need all of
    ``server``."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0], "server")
    if extra != "servers":
        return extra
    asking = {frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)}
    return "server" if any(name.startswith(_OF_SERVER) for name in asking) else extra


def _of_system(error: OSError, text: str) -> StoreError:
    """Return the error that an OSError means."""
    if isinstance(error, FileNotFoundError):
        return NotFoundError(text)
    if isinstance(error, PermissionError):
        return PermissionDeniedError(text)
    if isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError) or error.errno is None:
        return InvalidArgumentError(text)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageFullError(text)
    return UnavailableError(text)
