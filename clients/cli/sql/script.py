"""A script in its parts: statements up to their semicolons, and lines with a backslash command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....schemas.errors import InvalidArgumentError

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token


@dataclass(frozen=True, slots=True)
class ScriptPart:
    """A part of a script of ``nyala sql``: a statement without its semicolon, or a backslash command, and where it
    begins; lines and columns count from 1."""

    text: str
    line: int
    column: int = 1

    @property
    def is_command(self) -> bool:
        """Whether it is a backslash command."""
        return self.text.startswith("\\")


def script_parts(text: str) -> Iterator[ScriptPart]:
    """Yield the parts of a script of ``nyala sql``. Semicolons and backslashes in quotes and comments part nothing.

    A backslash command is the first word of its line, and ends the statement before it.

    Raises:
        InvalidArgumentError: a quote or a comment is not closed; the message names a line.
    """
    waiting, first_line = "", 1
    for piece in _pieces(text):
        if piece.lstrip().startswith("\\") and _is_closed(waiting):
            yield from _statements(waiting, first_line)
            first_line += waiting.count("\n")
            yield ScriptPart(piece.strip(), first_line)
            waiting, first_line = "", first_line + piece.count("\n")
        else:
            waiting += piece
    yield from _statements(waiting, first_line)


def is_whole(text: str) -> bool:
    """Return whether what a user of the shell ``nyala sql`` has typed can run: it ends with a semicolon or a backslash
    command, or is empty."""
    before, _, last = text.rstrip().rpartition("\n")
    if last.lstrip().startswith("\\"):
        return _is_closed(before)
    try:
        tokens = _tokens(text)
    except InvalidArgumentError:
        return False
    return not tokens or _ends(tokens[-1])


def _pieces(text: str) -> Iterator[str]:
    """Yield each line that begins with a backslash, and the text between such lines."""
    start = 0
    while start < len(text):
        end = start
        while end < len(text) and not (is_command := _begins_command(text, end)):
            end = (text.find("\n", end) + 1) or len(text)
        if end > start:
            yield text[start:end]
        elif is_command:
            end = (text.find("\n", start) + 1) or len(text)
            yield text[start:end]
        start = end


def _begins_command(text: str, at: int) -> bool:
    while text[at : at + 1] in (" ", "\t"):
        at += 1
    return text.startswith("\\", at)


def _statements(text: str, first_line: int) -> Iterator[ScriptPart]:
    try:
        tokens = _tokens(text)
    except InvalidArgumentError:
        raise InvalidArgumentError(
            f"a quote or a comment is not closed, at or after line {first_line + _closed_lines(text)}"
        ) from None
    lines, counted_to = first_line, 0
    start: int | None = None
    for token in tokens:
        if not _ends(token):
            start = token.start if start is None else start
        elif start is not None:
            lines += text.count("\n", counted_to, start)
            counted_to = start
            yield _part(text, start, token.start, lines)
            start = None
    if start is not None:
        yield _part(text, start, len(text), lines + text.count("\n", counted_to, start))


def _part(text: str, start: int, end: int, line: int) -> ScriptPart:
    return ScriptPart(text[start:end].rstrip(), line, start - text.rfind("\n", 0, start))


def _closed_lines(text: str) -> int:
    """Return a number of lines after which no quote and no comment is open, and after which one stays so.

    Each step takes twice as many lines as the last one, lest a long script be read once for each of its lines.
    """
    lines = text.splitlines(keepends=True)
    closed, step = 0, 1
    while closed + step <= len(lines):
        if _is_closed("".join(lines[closed : closed + step])):
            closed, step = closed + step, 1
        else:
            step *= 2
    return closed


def _is_closed(text: str) -> bool:
    try:
        _tokens(text)
    except InvalidArgumentError:
        return False
    return True


def _tokens(text: str) -> list[Token]:
    """Return the tokens of SQL. Raises InvalidArgumentError: a quote or a comment is not closed."""
    import sqlglot
    from sqlglot.errors import TokenError

    try:
        return list(sqlglot.tokenize(text, read="postgres"))
    except TokenError:
        raise InvalidArgumentError("a quote or a comment is not closed") from None


def _ends(token: Token) -> bool:
    return token.token_type.name == "SEMICOLON"
