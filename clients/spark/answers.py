"""Answers to the Java shim. It cannot reach the store, and during planning a schema is all that Spark passes on from
Python: so each answer is a schema whose field names, or the ``value`` in whose metadata, hold the answer."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import LongType, StructField, StructType

from ...schemas.errors import InvalidArgumentError, NotFoundError
from .options import BatchReadOptions, parse
from .server import server_of

ASK = "ask"
"""The option that holds the question; all others are read options."""

_Options = dict[str, str]


def answer(options: _Options) -> StructType:
    """Answer a question.

    Raises:
        StoreError: the question is unknown, or the store has no answer.
    """
    question = options.pop(ASK)
    if question not in _ANSWERS:
        raise InvalidArgumentError(f"unknown question {question!r}: the Java shim has another version; build it again")
    server_of(options["uri"], options).server(patient=False)  # report a missing server at once
    return _ANSWERS[question](options)


def _schema(options: _Options) -> StructType:
    """The schema of a read; no fields if the table does not exist."""
    from .batch_read import asked_schema

    try:
        return asked_schema(options)
    except NotFoundError:
        return StructType()


def _tables(options: _Options) -> StructType:
    """The names of all tables."""
    return _numbers(dict.fromkeys(server_of(options["uri"], options).all_servers().tables(), 0))


def _now(options: _Options) -> StructType:
    """A timestamp that covers every write acknowledged so far, on all reachable servers."""
    from ..cluster.planning import now_there
    from ..cluster.store import PlacedStore

    store = server_of(options["uri"], options).all_servers()
    now = now_there(store.servers)[0] if isinstance(store, PlacedStore) else store.now()
    return _numbers({"now": now})


def _size(options: _Options) -> StructType:
    """An estimate of the rows and bytes of a read."""
    from .batch_read import scan_of, source_schema

    read = parse(BatchReadOptions, options, "read")
    parts = read.server().parts(scan_of(read, source_schema(read).fieldNames())).parts
    return _numbers({"rows": sum(part.rows for part in parts), "bytes": sum(part.bytes for part in parts)})


def _numbers(numbers: dict[str, int]) -> StructType:
    return StructType([StructField(name, LongType(), True, {"value": number}) for name, number in numbers.items()])


_ANSWERS: dict[str, Callable[[_Options], StructType]] = {
    "schema": _schema,
    "tables": _tables,
    "now": _now,
    "size": _size,
}
