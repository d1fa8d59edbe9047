"""BEGIN, COMMIT and ROLLBACK: which of them a statement is."""

from __future__ import annotations

import re
from enum import StrEnum

from sqlglot import exp

from ...schemas.errors import InvalidArgumentError
from .statement import Kind, statement

_FIRST_WORD = re.compile(r"\s*(BEGIN|START|COMMIT|END|ROLLBACK)\b", re.IGNORECASE)
_TEXT_MAX = 200
IS_OPEN = "a transaction is open already: COMMIT or ROLLBACK it first"


class Control(StrEnum):
    """The SQL statements that begin or end a transaction."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"


def control(tree: exp.Expr) -> Control:
    """Return which of BEGIN, COMMIT and ROLLBACK an SQL statement of ``Kind.TRANSACTION`` is.

    Raises:
        InvalidArgumentError: it asks for a kind of transaction that there is not.
    """
    if isinstance(tree, exp.Transaction):
        modes = " ".join(str(mode) for mode in tree.args.get("modes") or ()).upper()
        if "SERIALIZABLE" in modes:
            raise InvalidArgumentError(
                "transactions have snapshot isolation, not SERIALIZABLE: write BEGIN ISOLATION LEVEL REPEATABLE READ"
            )
        return Control.BEGIN
    if tree.args.get("savepoint"):
        raise InvalidArgumentError("there are no savepoints: ROLLBACK takes the whole transaction back")
    if tree.args.get("chain"):
        raise InvalidArgumentError("AND CHAIN is not supported: BEGIN another transaction")
    return Control.COMMIT if isinstance(tree, exp.Commit) else Control.ROLLBACK


def none_is_open(which: Control) -> str:
    """Return the message for an SQL statement COMMIT or ROLLBACK without a transaction."""
    return f"no transaction is open: BEGIN comes before {which.upper()}"


def control_in(text: str) -> Control | None:
    """Return which of BEGIN, COMMIT and ROLLBACK an SQL text is; None: it is another statement. It looks at the first
    word alone, unless that is one of theirs. Raises as ``control``."""
    if len(text) > _TEXT_MAX or not _FIRST_WORD.match(text):
        return None
    query = statement(text)
    return control(query.tree) if query.kind is Kind.TRANSACTION else None
