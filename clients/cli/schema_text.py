"""Columns as text, as on the command line and in schema files.

    id int64, city varchar(40) not null default 'Oslo' encoding dictionary, "odd name" decimal(10,2), primary key (id)

A column is a name, a type, and any of: ``not null``, ``primary key``, ``default V``, ``read default V``,
``encoding E``, ``compression C``, ``comment 'text'``, ``immutable``, ``too long error``. Words may be in any case;
types are Nyala's, or SQL's usual names for them. ``name:type``, or ``name:type!`` for NOT NULL, is a short form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, get_args

from ...schemas.cells.literal import to_json
from ...schemas.cells.types import LogicalType
from ...schemas.errors import InvalidArgumentError
from ...schemas.table.column import ColumnDefinition, TooLong
from ..convert.text_cells import cell_of_text

_TOKEN = re.compile(
    r"""\s*(?: (?P<text>'(?:[^']|'')*') | (?P<name>"(?:[^"]|"")*") | (?P<word>[^\s,()'"]+) | (?P<mark>[,()]) )""", re.X
)
_NESTED = re.compile(r"\w+\s*<")
_SUFFIXED = re.compile(r"\w+\s*\([^()]*\)(?:\s*\[\s*\d*\s*\])+")
_LENGTHS = re.compile(r"(?:\s*\[\s*\d*\s*\])*")
_SHORT = re.compile(r"(?P<name>[^\s:,\"']+):(?P<type>[^!]+)(?P<required>!?)")


@dataclass
class SchemaText:
    """The columns that a command takes as one text: in order, and the key if it names one."""

    columns: list[ColumnDefinition] = field(default_factory=list)
    key: list[str] = field(default_factory=list)


def parse_schema(text: str) -> SchemaText:
    """Parse the text of several columns in a command's option.

    Raises:
        InvalidArgumentError: the text is invalid; the message says where.
    """
    parser = _Parser(text)
    parser.schema()
    return parser.found


def parse_column(text: str) -> ColumnDefinition:
    """Parse the text of one column in a command's option. Raises InvalidArgumentError if it is invalid."""
    if short := _SHORT.fullmatch(text.strip()):
        return ColumnDefinition(name=short["name"], type=short["type"].strip(), nullable=not short["required"])
    parser = _Parser(text)
    parser.column()
    parser.end()
    if parser.found.key:
        raise InvalidArgumentError(f"{text!r}: give the primary key as --key")
    return parser.found.columns[0]


def too_long_of(word: str) -> TooLong:
    """Return what a word in a command's option says of too long text. Raises InvalidArgumentError if it says
    nothing."""
    for known in get_args(TooLong):
        if word.lower() == known:
            return known
    raise InvalidArgumentError(f"unknown word {word!r} for text that is too long; known: error, truncate")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._at = 0
        self.found = SchemaText()
        self._next()

    def schema(self) -> None:
        """Columns and keys, separated by commas."""
        while True:
            if self._takes("primary", "key"):
                self.found.key += self._names()
            else:
                self.column()
            if not self._takes(","):
                break
        self.end()

    def column(self) -> None:
        """name type attribute ..."""
        name = self._name("a column")
        kind = self._type()
        parts: dict[str, Any] = {}
        while self._kind == "word" and self._attribute(name, kind, parts):
            pass
        self.found.columns.append(ColumnDefinition(name=name, type=kind, **parts))

    def end(self) -> None:
        """Expect the end of the text."""
        if self._kind:
            raise self._wrong("the end, a comma or a word such as NOT NULL")

    def _attribute(self, name: str, kind: str, parts: dict[str, Any]) -> bool:
        """Read one attribute of a column; return False if none follows."""
        if self._takes("not", "null"):
            parts["nullable"] = False
        elif self._takes("null"):
            parts["nullable"] = True
        elif self._takes("primary", "key"):
            self.found.key.append(name)
        elif self._takes("default", "expression"):
            parts["default_expression"] = self._string("an expression between single quotes")
        elif self._takes("default"):
            parts["write_default"] = self._literal(kind)
        elif self._takes("read", "default"):
            parts["read_default"] = self._literal(kind)
        elif self._takes("encoding"):
            parts["encoding"] = self._name("an encoding")
        elif self._takes("compression"):
            parts["compression"] = self._name("a compression")
        elif self._takes("comment"):
            parts["comment"] = self._string("text between single quotes")
        elif self._takes("immutable"):
            parts["immutable"] = True
        elif self._takes("merge"):
            parts["merge"] = self._string("sum, min, max, append or an expression, between single quotes")
        elif self._takes("too", "long"):
            parts["too_long"] = too_long_of(self._name("error or truncate"))
        else:
            return False
        return True

    def _type(self) -> str:
        if self._kind == "word" and (end := self._nested_end()):
            first, self._at = self._at - len(self._token), end
            self._next()
            return str(LogicalType.parse(self._text[first:end]))
        word = self._take(lambda: self._kind == "word", "a type").lower()
        if word == "double":
            self._takes("precision")
        if self._takes("("):
            numbers = [self._name("a number")]
            while self._takes(","):
                numbers.append(self._name("a number"))
            self._expect(")")
            word = f"{word}({','.join(numbers)})"
        return str(LogicalType.parse(word))

    def _nested_end(self) -> int | None:
        """Return where a type with angle brackets ends that begins with this word; None if it has none."""
        place = self._at - len(self._token)
        if suffixed := _SUFFIXED.match(self._text, place):
            return suffixed.end()
        if not (match := _NESTED.match(self._text, place)):
            return None
        depth, is_quoted = 0, False
        for place in range(match.end() - 1, len(self._text)):
            letter = self._text[place]
            is_quoted ^= letter == '"'
            if not is_quoted:
                depth += (letter == "<") - (letter == ">")
            if depth == 0:
                suffix = _LENGTHS.match(self._text, place + 1)
                return suffix.end() if suffix else place + 1
        raise InvalidArgumentError(f"{self._text!r}: a type has a < without its >")

    def _literal(self, kind: str) -> Any:
        if self._takes("null"):
            return None
        text = self._string("a value") if self._kind == "text" else self._name("a value")
        return to_json(cell_of_text(text, LogicalType.parse(kind)))

    def _names(self) -> list[str]:
        self._expect("(")
        names = [self._name("a column")]
        while self._takes(","):
            names.append(self._name("a column"))
        self._expect(")")
        return names

    def _string(self, what: str) -> str:
        return self._take(lambda: self._kind == "text", what)[1:-1].replace("''", "'")

    def _name(self, what: str) -> str:
        token = self._take(lambda: self._kind in ("word", "name"), what)
        return token[1:-1].replace('""', '"') if token.startswith('"') else token

    def _takes(self, *words: str) -> bool:
        """Skip these words if they follow; return whether they do."""
        before = self._at, self._kind, self._token
        for word in words:
            if self._kind not in ("word", "mark") or self._token.lower() != word:
                self._at, self._kind, self._token = before
                return False
            self._next()
        return True

    def _expect(self, mark: str) -> None:
        if not self._takes(mark):
            raise self._wrong(repr(mark))

    def _take(self, fits: Callable[[], bool], what: str) -> str:
        if not fits():
            raise self._wrong(what)
        token = self._token
        self._next()
        return token

    def _next(self) -> None:
        match = _TOKEN.match(self._text, self._at)
        if match is None and self._text[self._at :].strip():
            raise InvalidArgumentError(f"{self._text!r}: a quote is not closed")
        self._kind = match.lastgroup if match else None
        self._token = match[match.lastgroup or 0] if match else ""
        self._at = match.end() if match else len(self._text)

    def _wrong(self, expected: str) -> InvalidArgumentError:
        place = f"at {self._token!r}" if self._kind else "at the end"
        return InvalidArgumentError(f"{self._text!r}: expected {expected} {place}")
