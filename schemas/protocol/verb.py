"""Verb: the single description of an Arrow Flight action, which servers, clients and routers follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from inspect import Signature, signature
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel

from ..rows.scan import ScanSpec
from ..rows.statement import Statement
from .command import built, read_json
from .need import Need
from .shape import shape

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
ANSWER: Any = None
"""What the bodies of verbs return, for type checkers alone: ``perform`` answers in their place."""


class Kind(Enum):
    """The kinds of work that verbs do, for admission; the value is the kind's name in errors."""

    CALL = "requests"
    """Short actions."""
    TASK = "long actions"
    """Actions that may work for minutes: maintenance, commits, moves."""
    STATEMENT = "statements"
    """Updates, deletes and restores by a condition, which may read and compute for minutes."""
    PLAN = "planning requests"
    LARGE = "large requests"
    """Requests with a long text, while it is parsed: that holds the interpreter lock."""
    SCAN = "scans"
    PUT = "write streams"
    EXCHANGE = "streams of point reads"
    """Open streams, most of them idle; each batch of keys is admitted as a point read."""
    READ = "point reads"

    __hash__ = object.__hash__  # members are single objects; Enum's own hash is a call in Python, a dozen a request


@dataclass(frozen=True, slots=True)
class Pieces:
    """The answer of a verb in several results."""

    cut: Callable[[Any], Iterator[bytes]] = iter
    joined: Callable[[Iterator[bytes]], Any] = iter
    model: type[BaseModel] | None = None
    """What each result is as JSON; None: bytes."""


@dataclass(frozen=True, slots=True)
class Verb:
    """A verb of a store: an action of Arrow Flight, and the method of ``StoreService`` that performs it.

    The method takes ``request`` itself, or its fields in order; it returns ``answer``, or its only ``member``. Without
    an answer, ``{}`` is sent.
    """

    name: str
    method: str
    arguments: Signature
    meaning: str
    """The docstring of the method."""
    needs: Need
    """What a caller may have to be granted; a server checks it before ``method`` is called."""
    request: type[BaseModel] | None = None
    answer: type[BaseModel] | type[dict[str, Any]] | Pieces | None = None
    member: str | None = None
    kind: Kind = Kind.CALL
    is_long: bool = False
    """Whether the body may be long: a scan with its filter, the files of an import, the parts of a transaction."""
    is_read: bool = False
    """Whether it changes nothing: a client may repeat it if the server goes down."""
    has_nulls: bool = False
    """Whether null fields are sent, too: one server's message is passed to another unchanged."""
    alone: str = ""
    """What is impossible if several servers share the table."""

    @property
    def about(self) -> str:
        """Its description in ListActions: its meaning, and the names in its request and in its answer."""
        meaning = " ".join(self.meaning.replace("``", "`").split())
        body = "none" if self.request is None else shape(self.request, is_request=True)
        return f"{meaning} Body: {body}. Answer: {self._answers()}."

    def _answers(self) -> str:
        if self.answer is None:
            return "{}"
        if isinstance(self.answer, Pieces):
            page = self.answer.model
            return f"several results, each {shape(page)}" if page else "bytes, as several results"
        if issubclass(self.answer, BaseModel):
            return shape(self.answer)
        return f'{{"{self.member}"}}' if self.member else "{...}"

    @property
    def takes_request(self) -> bool:
        """Whether the method takes the request itself."""
        taken = [parameter.annotation for parameter in self.arguments.parameters.values()]
        return self.request is not None and taken[1:] == [self.request.__name__]

    def body(self, *args: Any, **named: Any) -> bytes:
        """Return the body of a call with these arguments. Raises InvalidArgumentError."""
        if self.request is None:
            return b""
        bound = self.arguments.bind(None, *args, **named)
        bound.apply_defaults()
        _, *values = bound.arguments.values()
        if self.takes_request:
            (asked,) = values
        else:
            names = list(bound.arguments)[1:]
            asked = built(self.request, f"the body of {self.name}", **dict(zip(names, values, strict=True)))
        return asked.model_dump_json(exclude_none=not self.has_nulls).encode()

    def told(self, value: Any) -> str | Iterator[bytes]:
        """Return the JSON of an answer, or its pieces."""
        if self.answer is None:
            return "{}"
        if isinstance(self.answer, Pieces):
            return self.answer.cut(value)
        if issubclass(self.answer, BaseModel):
            return (self.answer(**{self.member: value}) if self.member else value).model_dump_json()
        return json.dumps({self.member: value} if self.member else value)

    def taken(self, body: bytes) -> list[Any]:
        """Return the method's arguments from the body of a call. Raises InvalidArgumentError: it is invalid."""
        if self.request is None:
            return []
        is_optional = not any(field.is_required() for field in self.request.model_fields.values())
        asked = read_json(self.request, body or (b"{}" if is_optional else b""), f"the body of {self.name}")
        if isinstance(asked, ScanSpec | Statement):
            asked = asked.checked()
        return [asked] if self.takes_request else [getattr(asked, name) for name in self.request.model_fields]

    def value(self, results: Iterator[bytes]) -> Any:
        """Return the method's result from the action's results."""
        if isinstance(self.answer, Pieces):
            return self.answer.joined(results)
        (body,) = results
        if self.answer is None:
            return None
        if issubclass(self.answer, BaseModel):
            answer = self.answer.model_validate_json(body)
            return getattr(answer, self.member) if self.member else answer
        found = json.loads(body)
        return found[self.member] if self.member else found


def verb(
    request: type[BaseModel] | None = None,
    answer: type[BaseModel] | type[dict[str, Any]] | Pieces | None = None,
    name: str | None = None,
    *,
    needs: Need,
    **more: Any,
) -> Callable[[Callable[Asked, Answer]], Callable[Asked, Answer]]:
    """Make an action of a method of ``Verbs``: see ``Verb``. The method calls ``perform`` of its object; its docstring
    is for the clients of all languages."""

    def described(method: Callable[Asked, Answer]) -> Callable[Asked, Answer]:
        called, meaning = name or method.__name__, method.__doc__ or ""
        entry = Verb(called, method.__name__, signature(method), meaning, needs, request, answer, **more)

        @wraps(method)
        def asked(*args: Asked.args, **named: Asked.kwargs) -> Answer:
            store, *others = args
            return store.perform(entry, *others, **named)  # type: ignore[union-attr]

        asked.verb = entry  # type: ignore[attr-defined]
        return asked

    return described
