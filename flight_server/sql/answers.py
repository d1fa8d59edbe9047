"""What a statement would answer, and small answers that wait for their ticket."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import pyarrow as pa

from ...clients.sql.statement import statement
from .owner import Owner

_ANSWERS_MAX = 256
_NOTHING = None, None
_CONSTANT_MAX = 256
"""The longest text of a query of constants whose answer is kept."""


class StatementDescription(NamedTuple):
    """What a statement of Flight SQL would answer."""

    schema: pa.Schema | None
    """None: it changes rows."""
    parameters: pa.Schema
    varies: bool = False
    """Whether the schema depends on the types of parameters."""
    rows: pa.Table | None = None
    """Its answer, if it reads no table and has few rows."""


class SmallAnswers:
    """Small answers of Flight SQL that a ticket was given for, until it is used; and those of queries of constants,
    such as ``SELECT 1``, by which pools of connections ask whether the server lives. Thread safe."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, tuple[Owner, pa.Table]] = OrderedDict()
        self._constants: OrderedDict[str, StatementDescription] = OrderedDict()
        self._lock = threading.Lock()

    def constant(self, text: str) -> StatementDescription | None:
        """Return what is known of a query of constants, whoever asked for it; None: nothing."""
        return self._constants.get(text)

    def learn(self, text: str, described: StatementDescription) -> None:
        """Keep the answer of a statement if it is a query of constants."""
        if described.rows is None or len(text) > _CONSTANT_MAX or not statement(text).is_constant:
            return
        with self._lock:
            self._constants[text] = described
            if len(self._constants) > _ANSWERS_MAX:
                self._constants.popitem(last=False)

    def add(self, number: int, owner: Owner, rows: pa.Table) -> None:
        """Keep the answer to the ticket of this number, for the one who asked."""
        with self._lock:
            self._rows[number] = owner, rows
            if len(self._rows) > _ANSWERS_MAX:
                self._rows.popitem(last=False)

    def pop(self, number: Any, owner: Owner) -> pa.Table | None:
        """Return an answer, once, to the one who asked; None: it is not there."""
        with self._lock:
            asker, rows = self._rows.get(number, _NOTHING) if isinstance(number, int) else _NOTHING
            if rows is None or asker != owner:
                return None
            del self._rows[number]
        return rows
