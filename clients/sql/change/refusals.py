"""Refuses the statements that there are not, and says what to do instead."""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from ....schemas.errors import InvalidArgumentError

_KINDS = {
    "VIEW": "there are no views: keep the query in a table by CREATE TABLE ... AS, or write it as WITH",
    "INDEX": "there are no indexes: rows are found by the primary key, so put the columns that you search into the key",
    "FUNCTION": "there are no user-defined functions: write the expression in each statement",
    "PROCEDURE": "there are no procedures: send the statements one by one, in a transaction",
    "TRIGGER": "there are no triggers: read the changes of a table by changes()",
    "SEQUENCE": "there are no sequences: a table with the option unique_key = false numbers its rows",
    "SCHEMA": "there is one schema, public: use prefixes in the names of tables instead",
    "DATABASE": "a store is one database: open another store",
    "TYPE": "there are no user-defined types: use the types of columns",
    "USER": "there are no users in SQL: see the settings of the server",
    "ROLE": "there are no roles in SQL: grant to a role with grant()",
}
_STATEMENTS = {
    "GRANT": "SQL cannot give grants: use grant()",
    "REVOKE": "SQL cannot take grants back: use revoke()",
    "COPY": "SQL does not read or write files: use the jobs load and export",
    "VACUUM": "a store needs no VACUUM: maintenance runs automatically; maintain() runs it at once",
    "ANALYZE": "a store needs no ANALYZE: it needs no statistics",
    "LOCK": "there are no table locks: a statement is one commit, and conflicts are detected automatically",
    "SET": "there are no settings of a session in SQL",
    "CALL": "there are no procedures: send the statements one by one, in a transaction",
}


def refuse_kind(verb: str, kind: str) -> NoReturn:
    """Refuse an SQL statement: ``verb``, such as CREATE, of something that is no table. Raises InvalidArgumentError,
    always."""
    advice = _KINDS.get(kind.upper(), "only tables can be created, altered and dropped")
    raise InvalidArgumentError(f"{verb} {kind.upper()} is not possible: {advice}")


def refuse_statement(tree: exp.Expr) -> NoReturn:
    """Refuse an SQL statement that changes neither rows nor tables. Raises InvalidArgumentError, always."""
    word = str(tree.this).upper() if isinstance(tree, exp.Command) else tree.key.upper()
    if word in ("CREATE", "DROP", "ALTER"):
        rest = str(tree.expression or "").split()
        kind = rest[0].upper() if rest else "IT"
        if kind != "TABLE":
            refuse_kind(word, kind)
        raise InvalidArgumentError(f"{word} TABLE is not possible in this form: docs/sql.md lists the forms")
    if isinstance(tree, exp.Transaction | exp.Commit | exp.Rollback):
        raise InvalidArgumentError(f"{word} belongs to the transaction of a connection: it is not a change of rows")
    advice = _STATEMENTS.get(word, "known: INSERT, UPDATE, DELETE, MERGE, TRUNCATE, and CREATE, ALTER, DROP TABLE")
    raise InvalidArgumentError(f"{word} is not a statement that changes rows or tables: {advice}")
