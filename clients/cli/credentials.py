"""Options that stand before and after every verb: who calls, which servers to trust, the key of an encrypted store.

They become variables of the environment, which all connections and openings of this process read, and those of Spark.
"""

from __future__ import annotations

import copy
import os
from typing import Annotated, Any

import typer

from ...schemas.errors import InvalidArgumentError

_IN_PLACE_OF = {"--token-file": "NYALA_TOKEN", "--key-file": "NYALA_KEY_COMMAND", "--key-command": "NYALA_KEY_FILE"}
"""The variables that an option overrides, besides its own."""
_OTHERS = 0o077
"""The rights of all but the owner of a file."""
_ALSO = "The options of nyala itself, such as --token-file and --key-file, may stand here, too."


def _set(context: typer.Context, option: typer.CallbackParam, value: str | None) -> None:
    """Set the variable of an option that is given."""
    if value is None or context.resilient_parsing:
        return
    flag = option.opts[0]
    if not value.strip():
        raise InvalidArgumentError(f"{flag} is empty: give a value, or leave it out")
    flags = context.meta.setdefault(__name__, set())  # of the whole line
    flags.add(flag)
    if {"--key-file", "--key-command"} <= flags:
        raise InvalidArgumentError("give --key-file or --key-command, not both")
    os.environ.pop(_IN_PLACE_OF.get(flag, ""), None)
    os.environ[f"NYALA_{flag[2:].replace('-', '_').upper()}"] = value


def warn_of_token_file() -> None:
    """Warn the user of a command on standard error if others can read the file with the token: of one of this user, as
    ssh does.

    It is no error: what a container mounts for its only user may have any mode.
    """
    path = os.environ.get("NYALA_TOKEN_FILE")
    if not path or os.environ.get("NYALA_TOKEN"):
        return
    try:
        about = os.stat(path)
    except OSError:
        return  # whoever reads it says so
    if about.st_uid == os.geteuid() and about.st_mode & _OTHERS:
        typer.echo(f"warning: other users can read the token file {path}; run: chmod 600 {path}", err=True)


TokenFile = Annotated[
    str | None,
    typer.Option(
        callback=_set,
        expose_value=False,
        help="A file with the token for the server; NYALA_TOKEN is the token itself.",
    ),
]
TlsRoots = Annotated[
    str | None, typer.Option(callback=_set, expose_value=False, help="The roots of server certificates, in PEM.")
]
ClientCert = Annotated[
    str | None, typer.Option(callback=_set, expose_value=False, help="The certificate of this client, in PEM.")
]
ClientKey = Annotated[
    str | None, typer.Option(callback=_set, expose_value=False, help="The private key of --client-cert.")
]
KeyFile = Annotated[
    str | None, typer.Option(callback=_set, expose_value=False, help="A file with the key of an encrypted store.")
]
KeyCommand = Annotated[
    str | None, typer.Option(callback=_set, expose_value=False, help="A shell command that prints this key.")
]


def give_to_verbs(root: Any) -> None:
    """Let every command below take the root command's options of credentials, hidden, unless it has one of that name
    itself."""
    options = [copy.copy(each) for each in root.params if getattr(each, "callback", None) is not None]
    options = [each for each in options if not each.expose_value]
    for each in options:
        each.hidden = True
    _give(root, options)


def _give(group: Any, options: list[Any]) -> None:
    for command in group.commands.values():
        own = {flag for each in command.params for flag in each.opts}
        command.params = [*command.params, *(each for each in options if own.isdisjoint(each.opts))]
        if hasattr(command, "commands"):
            _give(command, options)
        else:
            command.epilog = command.epilog or _ALSO
