"""The text of one statement: its tokens, its tree and the nodes of it, each read once."""

from __future__ import annotations

from typing import NamedTuple, TypeVar, cast

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token

from ....schemas.errors import InvalidArgumentError
from .written import WrittenSql

N = TypeVar("N", bound=exp.Expr)
_DIALECT = WrittenSql()
_DEPTH_MAX = 400
"""Deeper statements would take Python, or DataFusion, to the end of their stacks."""


class ParsedText(NamedTuple):
    """An SQL statement as it was written."""

    tree: exp.Expr
    tokens: list[Token]
    nodes: dict[type[exp.Expr], list[exp.Expr]]
    """All nodes of the tree by their classes; of one class those near the root first."""

    def of(self, *classes: type[N]) -> list[N]:
        """Return the nodes of classes, and of classes below these."""
        of_classes = (nodes for kind, nodes in self.nodes.items() if issubclass(kind, classes))
        return [node for nodes in of_classes for node in cast(list[N], nodes)]


def read_text(text: str) -> ParsedText:
    """Read one SQL statement.

    Raises:
        InvalidArgumentError: it has a mistake, is nested too deeply, or is several statements.
    """
    try:
        tokens = _DIALECT.tokenize(text)
        trees = [tree for tree in _DIALECT.parser().parse(tokens, text) if tree is not None]
    except ParseError as error:
        raise _mistake(error) from None
    except TokenError as error:
        raise InvalidArgumentError(
            f"the SQL cannot be read: a quote or a comment is not closed{_near(error)}"
        ) from None
    except RecursionError:
        raise _too_deep() from None
    if not trees:
        raise InvalidArgumentError("the statement is empty")
    if len(trees) > 1:
        raise InvalidArgumentError("send one statement at a time")
    (tree,) = trees
    return ParsedText(tree, tokens, _nodes(tree))


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of an SQL statement that has been read."""
    return _DIALECT.tokenize(text)


def _nodes(tree: exp.Expr) -> dict[type[exp.Expr], list[exp.Expr]]:
    nodes: dict[type[exp.Expr], list[exp.Expr]] = {}
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > _DEPTH_MAX:
            raise _too_deep()
        for node in level:
            nodes.setdefault(type(node), []).append(node)
        level = [child for node in level for child in node.iter_expressions()]
    return nodes


def _too_deep() -> InvalidArgumentError:
    return InvalidArgumentError(f"the statement is nested too deeply: at most {_DEPTH_MAX} levels are allowed")


def _mistake(error: ParseError) -> InvalidArgumentError:
    first = error.errors[0] if error.errors else {}
    line, column, near = first.get("line"), first.get("col"), str(first.get("highlight") or "").strip()
    why = str(first.get("description") or "").strip().rstrip(".")
    why = why if why.startswith("Expect") else "this is not expected here"
    place = f" at line {line}, column {column}" if line else ""
    return InvalidArgumentError(
        f"the SQL cannot be read{place}{f', near {near[:40]!r}' if near else ''}: {why[0].lower()}{why[1:]}"
    )


def _near(error: TokenError) -> str:
    cut = str(error).partition("tokenizing ")[2].strip("'\n ")
    return f", near {cut[-40:]!r}" if cut else ""
