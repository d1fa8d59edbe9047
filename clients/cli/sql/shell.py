"""The shell: runs statements and backslash commands one after the other, and shows what comes of them."""

from __future__ import annotations

import re
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import typer

from ....schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from ....schemas.phrases import counted, perhaps
from ..output import print_table
from ..run import as_store_error
from ..table import print_description
from .commands import COMMANDS, HELP, read_command
from .form import SqlForm
from .script import ScriptPart, script_parts
from .sink import RowSink
from .waiting import StatementProgress

if TYPE_CHECKING:
    from ...api.database import Database

_NESTED_MAX = 16
"""How deep files may run files."""
_COUNTED = {"INSERT", "UPDATE", "DELETE", "MERGE", "CREATE TABLE AS"}
_PLACE = re.compile(r"\bat line (\d+), column (\d+)")


class LeaveShell(Exception):
    """Ends the shell ``nyala sql``, as ``\\q`` asks."""


class Shell:
    """Runs the statements and backslash commands of ``nyala sql`` on a database, in one session of it. Close it, or use
    it as a context manager; the database stays open."""

    def __init__(
        self,
        db: Database,
        sink: RowSink,
        as_of: int | None = None,
        timeout: float | None = None,
        is_timed: bool = False,
    ) -> None:
        self.db = db
        self.sink = sink
        self.is_timed = is_timed
        """Whether remarks tell how long a statement took."""
        self._as_of = as_of
        self._timeout = timeout
        self._depth = 0
        self._session = db.sql_session()

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_in_transaction(self) -> bool:
        """Whether its session has a transaction open."""
        return self._session.is_in_transaction

    def close(self) -> None:
        """Close the session and the file of rows."""
        self.sink.close()
        if self._session.is_in_transaction:
            typer.secho(
                "the open transaction was rolled back: end it with COMMIT to keep its changes",
                fg=typer.colors.RED,
                err=True,
            )
        self._session.close()

    def run(self, text: str, origin: str = "") -> bool:
        """Run the statements and commands of a text until one fails, and print its error with its line; return whether
        none did. ``origin`` says in errors where the text is from.

        Raises:
            LeaveShell: a command ends the shell.
        """
        part: ScriptPart | None = None
        try:
            for part in script_parts(text):
                if not self._run_part(part):
                    return False
        except (BrokenPipeError, LeaveShell):
            raise
        except Exception as error:
            plain = as_store_error(error)
            typer.secho(f"{plain.code}: {_located(plain, part, origin)}", fg=typer.colors.RED, err=True)
            return False
        return True

    def _run_part(self, part: ScriptPart) -> bool:
        if not part.is_command:
            self._run_statement(part.text)
            return True
        command, argument = read_command(part.text)
        if command is COMMANDS["\\i"]:
            return self._run_file(argument)
        _ACTIONS[command.name](self, argument)
        return True

    def _run_statement(self, text: str) -> None:
        began = perf_counter()
        with StatementProgress() as progress, self._session.sql(text, None, self._as_of, self._timeout) as result:
            if result.command is None:
                remark = self.sink.put(result, progress)
            else:
                remark = result.command
                if result.changed is not None and result.command in _COUNTED:
                    remark += f", {counted(result.changed, 'row')}"
        if remark:
            self._remark(remark, perf_counter() - began)

    def _remark(self, remark: str, seconds: float) -> None:
        """Show a remark. It is not among the rows that a program reads as CSV or JSON."""
        timed = f"{remark}, {seconds:.3f} s" if self.is_timed else remark
        if self.sink.is_screen:
            from .screen import say

            say(timed)
        else:
            is_between_rows = self.sink.path is None and self.sink.form is not SqlForm.TABLE
            typer.echo(timed, err=is_between_rows)

    def _run_file(self, name: str) -> bool:
        if self._depth == _NESTED_MAX:
            raise InvalidArgumentError(f"files run each other more than {_NESTED_MAX} deep: does {name} run itself?")
        self._depth += 1
        try:
            return self.run(read_script(Path(name).expanduser()), name)
        finally:
            self._depth -= 1

    def _describe(self, name: str) -> None:
        if not name:
            self._list()
            return
        names = self.db.tables()
        table = next((each for each in (name, name.lower()) if each in names), None)
        if table is None:
            raise NotFoundError(f"there is no table {name!r}{perhaps(name, names)}")
        described = self.db.table(table)
        print_description(described.describe(), described.count())

    def _list(self, _: str = "") -> None:
        print_table(["table"], [[name] for name in self.db.tables()])

    def _time(self, argument: str) -> None:
        if argument not in ("", "on", "off"):
            raise InvalidArgumentError(f"\\timing is on or off, not {argument!r}")
        self.is_timed = argument == "on" if argument else not self.is_timed
        typer.echo(f"timing is {'on' if self.is_timed else 'off'}")

    def _send(self, argument: str) -> None:
        path = Path(argument).expanduser() if argument else None
        if path is not None and path.is_dir():
            raise InvalidArgumentError(f"{argument} is a directory: name a file in it")
        self.sink.to_file(path)

    def _reform(self, argument: str) -> None:
        forms = list(SqlForm)
        if argument:
            if argument.lower() not in forms:
                known_forms = ", ".join(forms)
                raise InvalidArgumentError(f"there is no format {argument!r}; known: {known_forms}")
            self.sink.set_form(SqlForm(argument.lower()))
        typer.echo(f"format is {self.sink.form}")

    def _help(self, _: str) -> None:
        typer.echo(HELP)

    def _leave(self, _: str) -> None:
        raise LeaveShell


_ACTIONS = {
    "\\d": Shell._describe,
    "\\dt": Shell._list,
    "\\timing": Shell._time,
    "\\o": Shell._send,
    "\\format": Shell._reform,
    "\\?": Shell._help,
    "\\q": Shell._leave,
}


def read_script(path: Path) -> str:
    """Return the text of a script of ``nyala sql``. Raises InvalidArgumentError: it is not text in UTF-8; and
    OSError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"{path} is not text in UTF-8: its byte {error.start} is wrong") from None


def _located(error: StoreError, part: ScriptPart | None, origin: str) -> str:
    """Return the message of an error with its place in the text, where that has several statements or a name."""
    if part is None:
        return f"{origin}: {error.message}" if origin else error.message
    start = part

    def moved(match: re.Match[str]) -> str:
        line, column = int(match[1]), int(match[2])
        return f"at line {line + start.line - 1}, column {column + (start.column - 1 if line == 1 else 0)}"

    message = _PLACE.sub(moved, error.message)
    if origin:
        return f"{origin}, line {part.line}: {message}"
    return f"line {part.line}: {message}" if part.line > 1 else message
