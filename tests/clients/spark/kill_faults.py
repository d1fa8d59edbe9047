"""What goes wrong by itself in a driver that is made to be killed: tasks fail, before and after they have staged rows,
and nap, some for so long that Spark runs them twice; sinks nap between the store's commit and Spark's note of it.

`PLANTED` are mistakes of a connector, which a campaign must notice. Spark's processes import this module.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from nyala.clients.spark.batch_write import BatchWriter, StagedParts
from nyala.clients.spark.options import StreamWriteOptions, WriteOptions, parse
from nyala.clients.spark.source import NyalaDataSource
from nyala.clients.spark.stream_write import StagedPartsOfBatch, StreamWriter
from nyala.jobs import SparkExecutor

FAILED = 0.07
"""So many attempts of tasks fail by themselves, at each place where they can."""
SLOW = 0.5
"""So many first attempts of the first task of a stage are slow: Spark runs another one beside it."""
NAP_SECONDS, SLOW_SECONDS = 0.3, 1.5
_DICE = random.SystemRandom()  # forks have the same state of chance


def stumble() -> None:
    """Nap, and perhaps fail. Raises RuntimeError."""
    context = TaskContext.get()
    is_first = context is not None and context.partitionId() == 0 and context.attemptNumber() == 0
    time.sleep(SLOW_SECONDS if is_first and _DICE.random() < SLOW else _DICE.uniform(0.0, NAP_SECONDS))
    if _DICE.random() < FAILED:
        raise RuntimeError("planted")


def shaky() -> Callable[[int], int]:
    """Return a function that returns what it is given, and stumbles once in each attempt of a task."""
    of_attempt: set[int] = set()

    def passed(value: int) -> int:
        context = TaskContext.get()
        attempt = context.taskAttemptId() if context else 0
        if attempt not in of_attempt:
            of_attempt.add(attempt)
            stumble()
        return value

    return passed


class ShakyExecutor(SparkExecutor):
    """Lets tasks of jobs stumble before their work and after it."""

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], done: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """See SparkExecutor."""
        return super().run(partial(_shaken, function), tasks, done)


def _shaken(function: Callable[[Any], Any], task: Any) -> Any:
    stumble()
    result = function(task)
    stumble()
    return result


class ShakyWriter(BatchWriter):
    """Its tasks stumble when they have staged."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedParts:
        """See BatchWriter."""
        staged = super().write(iterator)
        stumble()
        return staged


class ShakyStreamWriter(StreamWriter):
    """Its tasks stumble when they have staged; it naps when it has committed."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedPartsOfBatch:
        """See StreamWriter."""
        staged = super().write(iterator)
        stumble()
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """See StreamWriter."""
        super().commit(messages, batchId)
        time.sleep(_DICE.uniform(0.0, NAP_SECONDS))


class ShakyNyala(NyalaDataSource):
    """The data source without the shim, whose tasks stumble."""

    folder = Path()
    """Where all processes of the campaign can write."""

    @classmethod
    def name(cls) -> str:
        """Another name than that of the source that the shim takes the place of."""
        return "nyala_plain"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """See ShakyWriter."""
        return ShakyWriter(schema, overwrite, parse(WriteOptions, self.options, "write"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """See ShakyStreamWriter."""
        return ShakyStreamWriter(schema, overwrite, parse(StreamWriteOptions, self.options, "writeStream"))


class _CountsAllAttempts(BatchWriter):
    """Commits what all attempts of its tasks have staged; each first attempt fails when it has."""

    folder = Path()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedParts:
        staged = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        note = self.folder / f"{staged.transaction}-{context.taskAttemptId()}.parts"
        note.write_text(json.dumps(staged.parts))
        if context.attemptNumber() == 0:
            raise RuntimeError("planted")
        return staged

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        notes = self.folder.glob(f"{self._transaction}-*.parts")
        parts = [part for note in notes for part in json.loads(note.read_text())]
        super().commit([StagedParts(self._transaction, parts, 0)])


class _Renumbers(ShakyStreamWriter):
    """Gives each commit a new number, so that the store cannot know a micro-batch that comes again."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, time.time_ns())
        time.sleep(SLOW_SECONDS)


class _DoublingNyala(ShakyNyala):
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        made = _CountsAllAttempts(schema, overwrite, parse(WriteOptions, self.options, "write"))
        made.folder = self.folder
        return made


class _RenumberingNyala(ShakyNyala):
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return _Renumbers(schema, overwrite, parse(StreamWriteOptions, self.options, "writeStream"))


PLANTED: dict[str, type[ShakyNyala]] = {"doubled": _DoublingNyala, "renumbered": _RenumberingNyala}


def source_in(folder: Path, planted: str | None = None) -> type[ShakyNyala]:
    """Return the data source to register, with a mistake if one is named."""
    base = PLANTED[planted] if planted else ShakyNyala
    return cast("type[ShakyNyala]", type("PlainNyala", (base,), {"folder": folder}))
