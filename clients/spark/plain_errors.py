"""Shows errors of the store in Spark without traceback, since Spark copies Python's output into its own messages.

A Python process in which a data source fails prints the error and exits. An environment variable decides whether it
prints the traceback: so it is set just before an error of the store leaves the process. Any other error is a bug and
keeps its traceback.
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
    """Hide the traceback of store errors that a method raises to Spark."""

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
        if spec is not None and spec.name.startswith("pyspark."):  # a process started by Spark
            os.environ[_HIDES] = "1"
        raise
