"""What completes a statement: keywords, functions, tables, and the columns of the tables that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING

from ....schemas.errors import StoreError
from .commands import COMMANDS
from .form import SqlForm

if TYPE_CHECKING:
    from ...api.database import Database

_WORDS = """
ALL ALTER ANALYZE AND AS ASC BEGIN BETWEEN BY CASE CAST COMMIT CREATE CROSS CURRENT_DATE CURRENT_TIMESTAMP DELETE DESC
DESCRIBE DISTINCT DROP ELSE END EXCEPT EXISTS EXPLAIN FALSE FIRST FOLLOWING FOR FROM FULL GROUP HAVING ILIKE IN INNER
INSERT INTERSECT INTERVAL INTO IS JOIN KEY LAST LEFT LIKE LIMIT NOT NULL NULLS OFFSET ON OR ORDER OUTER OVER PARTITION
PRECEDING PRIMARY RETURNING RIGHT ROLLBACK ROWS SELECT SET SHOW TABLE TABLES THEN TRUE TRUNCATE UNBOUNDED UNION UPDATE
USING VALUES WHEN WHERE WINDOW WITH
avg count dense_rank lag lead max min rank row_number stddev sum
"""
KEYWORDS = _WORDS.split()
"""The words of SQL that Tab completes; functions are in lower case."""
_WORD = re.compile(r'(?:"[^"]*|[\w$]*)\Z')
_BEFORE_TABLE = re.compile(r"\b(?:from|join|into|update|describe|table|truncate)\s+\Z", re.IGNORECASE)
_OF_TABLE = re.compile(r'(?:(?P<plain>\w+)|"(?P<quoted>[^"]+)")\.\Z')
_NAMES = re.compile(r'"([^"]+)"|(\w+)')
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_STAY_SECONDS = 5.0


class StoreNames:
    """The names of a store's tables and columns that the shell ``nyala sql`` completes. They are asked for when one is
    needed, and again some seconds later; a store that does not answer has none."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tables: tuple[float, list[str]] | None = None
        self._columns: dict[str, tuple[float, list[str]]] = {}

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        if self._tables is None or monotonic() > self._tables[0]:
            try:
                names = self._db.tables()
            except StoreError:
                names = []
            self._tables = monotonic() + _STAY_SECONDS, names
        return self._tables[1]

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns, none if there is no such table."""
        kept = self._columns.get(table)
        if kept is None or monotonic() > kept[0]:
            try:
                names = self._db.table(table).schema.names
            except StoreError:
                names = []
            kept = self._columns[table] = monotonic() + _STAY_SECONDS, names
        return kept[1]


def completed(text: str, after: str, names: StoreNames) -> tuple[str, list[str]]:
    """Return the word that a user of the shell ``nyala sql`` is typing at the end of ``text``, and what may stand in
    its place; ``after`` is the rest of the statement, whose tables count, too."""
    line = text.rpartition("\n")[2].lstrip()
    if line.startswith("\\"):
        return _command(line, names)
    match = _WORD.search(text)
    word = match[0] if match else ""
    before = text[: len(text) - len(word)]
    return word, list(dict.fromkeys(_candidates(word, before, text + after, names)))


def _command(line: str, names: StoreNames) -> tuple[str, list[str]]:
    name, space, argument = line.partition(" ")
    if not space:
        return name, [each for each in COMMANDS if each.startswith(name)]
    words = {"\\d": names.tables, "\\timing": lambda: ["on", "off"], "\\format": lambda: list(map(str, SqlForm))}
    return argument, [each for each in words.get(name, list)() if each.startswith(argument)]


def _candidates(word: str, before: str, whole: str, names: StoreNames) -> Iterator[str]:
    if _BEFORE_TABLE.search(before):
        yield from _written(word, names.tables())
        return
    owner = _OF_TABLE.search(before)
    if owner is not None:
        yield from _written(word, _columns_of(owner["quoted"] or owner["plain"].lower(), whole, names))
        return
    for table in _used(whole, names):
        yield from _written(word, names.columns(table))
    yield from _written(word, names.tables())
    if not word.startswith('"'):
        for keyword in KEYWORDS:
            if word and keyword.lower().startswith(word.lower()):
                yield keyword.lower() if word.islower() else keyword


def _used(whole: str, names: StoreNames) -> list[str]:
    """Return the tables that a statement names."""
    words = {quoted or plain.lower() for quoted, plain in _NAMES.findall(whole)}
    return [table for table in names.tables() if table in words]


def _columns_of(owner: str, whole: str, names: StoreNames) -> list[str]:
    """Return the columns of a table, or of the one whose alias is ``owner``: it stands after its table."""
    if owner in names.tables():
        return names.columns(owner)
    before_alias = rf'(?:"([^"]+)"|(\w+))\s+(?:as\s+)?"?{re.escape(owner)}\b'
    for quoted, plain in re.findall(before_alias, whole, re.IGNORECASE):
        if (table := quoted or plain.lower()) in names.tables():
            return names.columns(table)
    return []


def _written(word: str, names: list[str]) -> Iterator[str]:
    """Yield the names that begin with a word, in quotes where SQL needs them."""
    begun = word.lstrip('"').lower()
    for name in names:
        if name.lower().startswith(begun):
            is_plain = _PLAIN.fullmatch(name) and not word.startswith('"')
            yield name if is_plain else '"' + name.replace('"', '""') + '"'
