"""OwnWriters: the names under which a caller numbers its writes, made its own: nobody else can take the next number."""

from __future__ import annotations

from collections.abc import Callable

from ...schemas.rows.write import WriteCommand
from ...schemas.rows.writer_name import is_owned, owned


class OwnWriters:
    """The names of the writers of one caller. Thread safe."""

    def __init__(self, user: str, is_admin: Callable[[], bool]) -> None:
        """``is_admin`` returns whether the caller is an administrator now."""
        self._user = user
        self._is_admin = is_admin
        self._last: tuple[WriteCommand, WriteCommand] | None = None

    def command(self, command: WriteCommand) -> WriteCommand:
        """Return a command whose numbers are the caller's own."""
        if command.writer is None:
            return command
        last = self._last  # a session repeats its own
        if last is None or last[0] is not command or is_owned(command.writer):
            named = command.model_copy(update={"writer": self.name(command.writer)})
            last = self._last = command, named
        return last[1]

    def name(self, writer: str) -> str:
        """Return a writer's name as the caller's own. Servers, which are administrators, pass on those of others."""
        return writer if is_owned(writer) and self._is_admin() else owned(self._user, writer)
