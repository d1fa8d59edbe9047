"""The part of docs/cli-reference.md that is written from the commands; started as a program, it writes it there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from nyala.__main__ import make_app

PAGE = Path(__file__).parents[3] / "docs" / "cli-reference.md"
MARK = "<!-- reference -->\n"
_WITHOUT = {"help", "install_completion", "show_completion"}


def commands() -> dict[str, Any]:
    """Return the commands by their shortest names: ``nyala load`` stands for ``table load`` and ``job load`` too."""
    root: Any = typer.main.get_command(make_app())
    found: dict[str, Any] = {}
    for group, command in root.commands.items():
        for verb, each in getattr(command, "commands", {}).items():
            short = root.commands.get(verb)
            if short is None or short.help != each.help:
                found[f"{group} {verb}"] = each
        if not hasattr(command, "commands"):
            found[group] = command
    return found


def reference() -> str:
    """Return the part of the page that is written by this."""
    return "".join(part for name, command in sorted(commands().items()) for part in _section(name, command))


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = " ".join(_argument(each) for each in command.params if each.param_type_name == "argument")
    yield f"\n### nyala {name}\n\n{_first(command)}\n\n"
    yield f"`nyala {name} {arguments} [OPTIONS]`\n".replace("  ", " ")
    options = [each for each in command.params if each.param_type_name == "option" and each.name not in _WITHOUT]
    if options:
        yield "\n| option | |\n|---|---|\n"
        yield from (f"| {_flags(each)} | {_text(each)} |\n" for each in options)


def _argument(each: Any) -> str:
    word = (each.metavar or each.name).upper()
    shown = f"{word}..." if each.nargs == -1 and not word.endswith("...") else word
    return shown if each.required else f"[{shown}]"


def _flags(each: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in (*each.opts, *each.secondary_opts))


def _text(each: Any) -> str:
    text = " ".join((each.help or "").split())
    if each.envvar:
        text += f" Also `{each.envvar}`."
    if isinstance(each.show_default, str):
        text += f" Default: {each.show_default}."
    return text.replace("|", "\\|")


def _first(command: Any) -> str:
    text = inspect.cleandoc(command.help or "").replace("\f", "")
    return " ".join(text.partition("\n\n")[0].split())


if __name__ == "__main__":
    before, _, _ = PAGE.read_text().partition(MARK)
    PAGE.write_text(before + MARK + reference())
