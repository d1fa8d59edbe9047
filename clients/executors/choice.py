"""Resolves an executor: one named "local" or "spark", or the caller's own."""

from __future__ import annotations

from ...schemas.errors import InvalidArgumentError
from .executor import Executor, LocalExecutor, MappedExecutor, Mapping
from .spark_executor import SparkExecutor

ExecutorChoice = Executor | Mapping | str
"""An executor, or the name of one: local, spark."""


def executor_of(where: ExecutorChoice, workers: int | None = None) -> Executor:
    """Return the executor that runs a job's tasks: ``where`` itself if it is an executor, else the one named "local" or
    "spark".

    Raises:
        InvalidArgumentError: the name is unknown.
    """
    if where == "local":
        return LocalExecutor(workers)
    if where == "spark":
        return SparkExecutor(tasks_at_once=workers)
    if isinstance(where, str):
        raise InvalidArgumentError(f"unknown executor {where!r}; known: local, spark")
    return where if hasattr(where, "run") else MappedExecutor(where)  # pyright: ignore[reportReturnType, reportArgumentType]
