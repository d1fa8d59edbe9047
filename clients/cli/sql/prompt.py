"""The shell at a terminal: a line editor with a history, completion, and statements of several lines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import PostgresLexer

from .completion import StoreNames, completed
from .script import is_whole
from .shell import LeaveShell, Shell

_LEAVING = {"exit", "quit"}
_WITH_PATH = ("\\i ", "\\o ")


def interact(shell: Shell, name: str) -> None:
    """Run the shell ``nyala sql``: read statements from the terminal and run them, until the user leaves. ``name`` is
    the store's, for the prompt."""
    session = _prompt_session(shell, name)
    while True:
        try:
            text = session.prompt()
        except KeyboardInterrupt:  # it drops what is typed
            continue
        except EOFError:
            return
        if text.strip().rstrip(";").lower() in _LEAVING:
            return
        try:
            shell.run("\\?" if text.strip().lower() == "help" else text)
        except LeaveShell:
            return
        except KeyboardInterrupt:
            typer.secho("canceled", fg=typer.colors.RED, err=True)


def history_file() -> Path:
    """Return the file that keeps what is typed in the shell ``nyala sql``: ``nyala/sql_history`` in ``XDG_STATE_HOME``,
    else in ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "nyala" / "sql_history"


def _prompt_session(shell: Shell, name: str) -> PromptSession[str]:
    return PromptSession(
        lambda: f"{name}{'*' if shell.is_in_transaction else ''}> ",
        multiline=True,
        prompt_continuation=lambda width, *_: "-> ".rjust(width),
        key_bindings=_keys(),
        completer=StatementCompleter(StoreNames(shell.db)),
        complete_while_typing=False,
        lexer=PygmentsLexer(PostgresLexer),
        history=_history(),
        enable_history_search=True,
    )


def _history() -> History:
    """Return the history, in a file that only this user reads: statements may have secrets in them. Without a place for
    the file it lasts as long as the shell."""
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        path.chmod(0o600)
    except (OSError, RuntimeError):  # of a user without a home
        return InMemoryHistory()
    return FileHistory(path)


def _keys() -> KeyBindings:
    """Return what Enter does: it runs what is whole, and begins a new line otherwise."""
    keys = KeyBindings()

    @Condition
    def is_ready() -> bool:
        from prompt_toolkit.application import get_app

        text = get_app().current_buffer.text
        return text.strip().lower() in {*_LEAVING, "help"} or is_whole(text)

    @keys.add("enter", filter=is_ready)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return keys


class StatementCompleter(Completer):
    """Completes the word before the cursor of the shell ``nyala sql``, for prompt-toolkit."""

    def __init__(self, names: StoreNames) -> None:
        self._names = names
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """See Completer."""
        line = document.current_line_before_cursor.lstrip()
        if line.startswith(_WITH_PATH):
            path = line[3:].lstrip()
            yield from self._paths.get_completions(Document(path, len(path)), complete_event)
            return
        word, candidates = completed(document.text_before_cursor, document.text_after_cursor, self._names)
        for candidate in candidates:
            yield Completion(candidate, start_position=-len(word))
