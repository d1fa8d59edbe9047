"""Errors of the store in Spark: the message alone, since Spark puts what Python prints into the text of its own.

A process of Python in which a data source fails writes down the error and ends. What it writes is told by its
environment; so that says, when an error of the store is about to leave it, to leave the traceback out. Whatever else is
raised is a bug, and keeps it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from ...schemas.errors import StoreError

_HIDES = "SPARK_HIDE_TRACEBACK"
Method = TypeVar("Method", bound=Callable[..., Any])


def plain_errors(method: Method) -> Method:
    """Let the errors of the store that a method raises be shown without their traceback."""

    @functools.wraps(method)
    def called(*arguments: Any, **named: Any) -> Any:
        with _plain():
            return method(*arguments, **named)

    @functools.wraps(method)
    def iterated(*arguments: Any, **named: Any) -> Iterator[Any]:
        with _plain():
            yield from method(*arguments, **named)

    return iterated if inspect.isgeneratorfunction(method) else called  # pyright: ignore[reportReturnType]


@contextmanager
def _plain() -> Iterator[None]:
    try:
        yield
    except StoreError:
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name.startswith("pyspark."):  # a process of Spark's own
            os.environ[_HIDES] = "1"
        raise
