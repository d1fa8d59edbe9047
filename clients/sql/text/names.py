"""Names of tables and columns in statements, and the refusal of what a statement does not take."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from string import ascii_lowercase, ascii_uppercase

from sqlglot import exp

from ....schemas.errors import InvalidArgumentError
from ....schemas.phrases import perhaps
from .written import in_place_of

CATALOG, SCHEMA = "nyala", "public"
"""The only catalog and schema that there are; a name may stand without them."""
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
_ABOUT_TABLES = {"this", "alias", "db", "catalog", "only"}
_WORDS = {
    "with_": "WITH",
    "limit": "LIMIT",
    "order": "ORDER BY",
    "overwrite": "OVERWRITE: use TRUNCATE and INSERT in one transaction",
    "alternative": "OR REPLACE and OR IGNORE: use ON CONFLICT",
    "returning": "RETURNING: read the rows by a SELECT, before or after",
    "duplicate": "ON DUPLICATE KEY: use ON CONFLICT",
    "constraint": "ON CONSTRAINT: name the columns of the primary key",
    "index_predicate": "a WHERE before DO: the conflict is with the primary key",
    "using_cond": "USING (columns): write the condition after ON",
    "identity": "RESTART IDENTITY: a table never gives the same number again",
    "by_name": "BY NAME: list the columns after the table",
}


def lower(name: str) -> str:
    """Return what a name of SQL means that is not quoted. Letters beyond ASCII stay, as in DataFusion."""
    return name.translate(_LOWER)


def name_of(node: exp.Expr | str) -> str:
    """Return the name that an identifier of SQL, or a column or table of one part, means: in lower case unless
    quoted."""
    if isinstance(node, str):
        return node
    part = node if isinstance(node, exp.Identifier) else node.this
    if not isinstance(part, exp.Identifier):
        raise InvalidArgumentError(f"{shown(node)} is not a name: give the plain name of a table or column")
    return part.this if part.args.get("quoted") else lower(part.this)


def table_name(node: exp.Expr | None) -> str:
    """Return the name of the table that an SQL statement changes.

    Raises:
        InvalidArgumentError: it is no plain table of the schema ``nyala.public``.
    """
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise InvalidArgumentError(f"{shown(node)} is not a table: a statement changes one table, by its name")
    schema, catalog = node.args.get("db"), node.args.get("catalog")
    if catalog is not None and name_of(catalog) != CATALOG:
        raise InvalidArgumentError(f"there is no catalog {name_of(catalog)!r}: write only the name of the table")
    if schema is not None and name_of(schema) != SCHEMA:
        raise InvalidArgumentError(f"there is no schema {name_of(schema)!r}: write only the name of the table")
    refuse_others(node, _ABOUT_TABLES, f"the table {name_of(node)!r} of a statement that changes it")
    return name_of(node)


def alias_of(table: exp.Table) -> str:
    """Return the name by which the expressions of an SQL statement call its table."""
    alias = table.args.get("alias")
    return table_name(table) if alias is None else name_of(alias.this)


def identifier(name: str) -> exp.Identifier:
    """Return an identifier of SQL whose case nothing changes."""
    return exp.to_identifier(name, quoted=True)


def column(name: str, table: str) -> exp.Column:
    """Return the column ``name`` of ``table`` as an expression of SQL."""
    return exp.Column(this=identifier(name), table=identifier(table))


def of_table(node: exp.Expr, table: str, names: Collection[str] | None = None) -> exp.Expr:
    """Return an expression of SQL in which columns without a table are those of ``table``; with ``names``, only
    these."""

    def named(part: exp.Expr) -> exp.Expr:
        is_bare = isinstance(part, exp.Column) and not part.table and part.find_ancestor(exp.Query) is None
        if not is_bare or (names is not None and name_of(part) not in names):
            return part
        return in_place_of(part, column(name_of(part), table))

    return node.copy().transform(named)


def refuse_others(node: exp.Expr, taken: Collection[str], what: str) -> None:
    """Refuse the parts of an SQL statement that the store has no use for.

    Raises:
        InvalidArgumentError: ``node`` has a part that is not ``taken``.
    """
    for part, value in node.args.items():
        if value and part not in taken:
            raise InvalidArgumentError(f"{what} does not take {_WORDS.get(part, part.strip('_').upper())}")


def checked_column(name: str, known: Iterable[str], table: str) -> str:
    """Return the name of a column in an SQL statement. Raises InvalidArgumentError: the table lacks it."""
    names = list(known)
    if name not in names:
        near = perhaps(name, names)
        raise InvalidArgumentError(f"table {table!r} has no column {name!r}{near}; it has {', '.join(names[:20])}")
    return name


def refuse_repeated(names: list[str], what: str) -> None:
    """Raise InvalidArgumentError: in an SQL statement the clause ``what`` names a column twice."""
    if twice := [name for at, name in enumerate(names) if name in names[:at]]:
        raise InvalidArgumentError(f"{what} names the column {twice[0]!r} twice")


def shown(node: exp.Expr | None) -> str:
    """Return an expression of a statement as SQL, for a message, in one short line."""
    text = "nothing" if node is None else " ".join(node.sql(dialect="postgres").split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def quoted(name: str) -> str:
    """Return a name as SQL writes it, whatever its letters."""
    return '"' + name.replace('"', '""') + '"'
