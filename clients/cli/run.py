"""Runs a command line: what goes wrong is one line on standard error and an exit code, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer
from pydantic import ValidationError

from ...schemas.command import explain
from ...schemas.errors import InternalError, InvalidArgumentError, StoreError, UnavailableError

INTERRUPTED = 130


def run(app: Callable[[], object]) -> None:
    """Run a typer application and leave the process: 0 done, 1 an error, 2 wrong usage, 130 interrupted."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has enough; Python would complain on its way out
        sys.exit(0)
    except Exception as error:
        known = as_store_error(error)
        typer.secho(f"{known.code}: {known.message}", fg=typer.colors.RED, err=True)
        sys.exit(1)


def as_store_error(error: Exception) -> StoreError:
    """Return the error that a user is told of, whatever was raised."""
    if isinstance(error, StoreError):
        return error
    if isinstance(error, ValidationError):
        return InvalidArgumentError(explain(error, error.title))
    import pyarrow as pa

    if isinstance(error, ModuleNotFoundError):
        return UnavailableError(f"this needs the module {error.name}; install it with: pip install 'nyala[server]'")
    if isinstance(error, pa.ArrowException | OSError | ValueError):
        return InvalidArgumentError(str(error).partition("\n")[0])
    return InternalError(f"{type(error).__name__}: {error}")
