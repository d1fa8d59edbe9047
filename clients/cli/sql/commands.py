"""The backslash commands of the shell: their names and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ....schemas.errors import InvalidArgumentError
from ....schemas.phrases import perhaps


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A backslash command of the shell ``nyala sql``."""

    name: str
    argument: str
    """What stands after it; in brackets if it may be left out, empty if there is nothing."""
    meaning: str


COMMANDS: Mapping[str, ShellCommand] = {
    each.name: each
    for each in (
        ShellCommand("\\d", "[TABLE]", "list the tables, or describe one"),
        ShellCommand("\\dt", "", "list the tables"),
        ShellCommand("\\timing", "[on|off]", "show how long statements take"),
        ShellCommand("\\o", "[FILE]", "write rows to a file: .parquet .csv .arrow .jsonl; no FILE: end this"),
        ShellCommand("\\format", "[NAME]", "write rows as table, csv or json, and into files as parquet or arrow"),
        ShellCommand("\\i", "FILE", "run the statements of a file"),
        ShellCommand("\\?", "", "show this"),
        ShellCommand("\\q", "", "leave the shell, like Ctrl-D"),
    )
}


def read_command(text: str) -> tuple[ShellCommand, str]:
    """Return a backslash command of the shell ``nyala sql`` and what stands after it, without quotes; a semicolon at
    its end means nothing.

    Raises:
        InvalidArgumentError: there is no such command, or its argument is missing or one too many.
    """
    name, _, rest = text.strip().rstrip(";").partition(" ")
    argument = rest.strip()
    if len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "'\"":
        argument = argument[1:-1]
    command = COMMANDS.get(name)
    if command is None:
        raise InvalidArgumentError(f"there is no command {name}{_nearest(name)}; \\? shows all commands")
    if argument and not command.argument:
        raise InvalidArgumentError(f"{name} takes no argument: remove {argument!r}")
    if not argument and command.argument and not command.argument.startswith("["):
        raise InvalidArgumentError(f"{name} needs an argument: {name} {command.argument}")
    return command, argument


def _nearest(name: str) -> str:
    likely = perhaps(name.removeprefix("\\"), [each.removeprefix("\\") for each in COMMANDS])
    return likely.replace("'", "\\", 1).replace("'", "")


HELP = "\n".join(
    [
        "Statements end with ; and may have several lines.",
        *(f"  {each.name} {each.argument}".ljust(20) + each.meaning for each in COMMANDS.values()),
        "Tab completes. Ctrl-C cancels a statement, or the typed text.",
    ]
)
"""What ``\\?`` shows."""
