"""The requested order of a scan, by any columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from ..errors import InvalidArgumentError
from ..message import Message

_TERM = re.compile(
    r"""\s*(?P<column>"(?:[^"]|"")+"|[^\s"]+)(?:\s+(?P<way>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*""",
    re.IGNORECASE,
)


class OrderTerm(Message, frozen=True, extra="forbid"):
    """One column of the order that a scan requests. NULLs come last in either direction, unless ``nulls`` says
    otherwise."""

    column: str
    descending: bool = False
    nulls: Literal["first", "last"] = "last"


def order_terms(order_by: Any) -> list[OrderTerm] | None:
    """Parse a scan's ``order_by``: text as in SQL, "price DESC NULLS FIRST, id", or a list of such terms.

    Raises:
        InvalidArgumentError: it has another form, or names no column or one twice.
    """
    if order_by is None:
        return None
    terms = re.split(r""",(?=(?:[^"]*"[^"]*")*[^"]*$)""", order_by) if isinstance(order_by, str) else order_by
    if not isinstance(terms, Sequence) or not terms:
        raise InvalidArgumentError("order_by must be text such as 'price DESC, id', or a list of such terms")
    return [term if isinstance(term, OrderTerm) else _term(term) for term in terms]


def _term(text: object) -> OrderTerm:
    found = _TERM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidArgumentError(
            f"order_by {text!r} cannot be parsed: a term is a column, then ASC or DESC, then NULLS FIRST or NULLS "
            "LAST; put a name with spaces in double quotes"
        )
    name = found["column"]
    name = name[1:-1].replace('""', '"') if name.startswith('"') else name
    is_first = (found["nulls"] or "").lower() == "first"
    descending = (found["way"] or "").lower() == "desc"
    return OrderTerm(column=name, descending=descending, nulls="first" if is_first else "last")
