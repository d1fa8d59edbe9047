"""``nyala config``: the configuration of a server, as its command line, the environment and a file give it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from .serve_command import Json, serve, settings_of

app = typer.Typer(no_args_is_help=True, help="Show the configuration of a server.")


def _takes_serve_options(command: Callable[..., None]) -> Callable[..., None]:
    """Turn a function whose first parameter is the given options of ``serve`` into a command that takes them, too."""
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    names = {parameter.name for parameter in own}
    shared = [each for each in inspect.signature(serve, eval_str=True).parameters.values() if each.name not in names]

    @wraps(command)
    def called(**given: Any) -> None:
        command({each.name: given.pop(each.name) for each in shared}, **given)

    called.__signature__ = inspect.Signature([*shared, *own])  # pyright: ignore[reportAttributeAccessIssue]
    return called


@app.command("show")
@_takes_serve_options
def show(
    flags: dict[str, Any],
    given: Annotated[bool, typer.Option("--given", help="Print only settings that were set, not defaults.")] = False,
    as_file: Annotated[
        bool, typer.Option("--toml", help="Print a configuration file that explains each setting.")
    ] = False,
    json_output: Json = False,
) -> None:
    """Print each setting of a server, its value and where it comes from; takes the options of serve.

    nyala config show --config nyala.toml --set scans_max=16 --given
    """
    settings = settings_of(flags)
    if as_file:
        typer.echo(settings.text(given))
        return
    shown = [each for each in settings.shown() if each.where is not None or not given]
    if json_output:
        typer.echo(json.dumps({each.name: {"value": each.value, "from": each.where or "default"} for each in shown}))
        return
    from ...clients.cli.output import print_table

    rows = [(each.name, "" if each.value is None else each.text, each.where or "default") for each in shown]
    print_table(["setting", "value", "from"], rows)
