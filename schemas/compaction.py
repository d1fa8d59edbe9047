"""Distributed compaction: rowsets that are merged outside the store; the messages between mergers and store.

``compaction_begin`` returns a plan of tasks, each some rowsets of a tablet, whose files are kept. The holder of the
plan merges them into new files beside them. ``compaction_commit`` installs the files of one task.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from .table import TableSchema

COMPACTION_ID_LENGTH_MAX = 64
COMPACTION_SECONDS_MAX = 7 * 86_400
TASK_FILES_MAX = 10_000
"""Files of one task: so many ids are set aside for it."""


class _CompactionBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CompactionBegin(_CompactionBody):
    """The body of ``compaction_begin``."""

    table: str
    tablets: tuple[PositiveInt, ...] | None = None
    """Only these; None: all that the server has."""
    replace: bool = False
    """Whether compactions end that have rowsets of these tablets, as of a job that was killed; else they stand in the
    way of this one until their time is over."""
    ttl_seconds: int = Field(default=3600, ge=1, le=COMPACTION_SECONDS_MAX)
    """After so many seconds without a renewal what was not committed is dropped."""


class CompactionTask(_CompactionBody):
    """Rowsets of one tablet that are to be merged with one another."""

    number: NonNegativeInt
    tablet: PositiveInt
    entry: dict[str, Any]
    """The tablet's entry in the manifest (docs/format/manifest.md), with no more than these rowsets."""
    timestamp: NonNegativeInt
    """The outputs' base shows the rows at this moment; no file holds a later change."""
    history_mark: NonNegativeInt
    """What no snapshot from here on sees is left out."""
    directory: str
    """In the store's directory; the files are in ``inputs`` below it."""
    first_file_id: PositiveInt
    """The outputs' files have the numbers from here on, ``TASK_FILES_MAX`` of them. Two attempts may share them."""
    rows: NonNegativeInt
    bytes: NonNegativeInt


class CompactionPlan(_CompactionBody):
    """The answer of ``compaction_begin``."""

    compaction_id: str
    table: str
    schema_: TableSchema
    """Columns with their ids, types, encodings and compressions."""
    tasks: tuple[CompactionTask, ...]
    rowset_bytes: PositiveInt
    """About how many bytes an output should have, and at most how many rows."""
    rowset_rows: PositiveInt
    ttl_seconds: PositiveInt


class MergedFile(_CompactionBody):
    """A file that was written."""

    file_id: PositiveInt
    bytes: PositiveInt
    crc: NonNegativeInt
    """The CRC-32 of the whole file."""


class MergedRowset(_CompactionBody):
    """An output. Keys are encoded, in hexadecimal."""

    base: MergedFile
    undo: MergedFile | None = None
    rows: PositiveInt
    min_key: str
    max_key: str


class MergedTask(_CompactionBody):
    """What became of a task."""

    number: NonNegativeInt
    attempt: str = Field(pattern="^[0-9a-f]{1,64}$")
    """The directory of its files, in that of the task."""
    rowsets: tuple[MergedRowset, ...] = Field(max_length=TASK_FILES_MAX)
    """In the order of their keys."""
    is_history_lost: bool
    """Whether anything was left out."""


class CompactionCommit(_CompactionBody):
    """The body of ``compaction_commit``."""

    compaction_id: str = Field(max_length=COMPACTION_ID_LENGTH_MAX)
    task: MergedTask


class CompactionName(_CompactionBody):
    """The body of ``compaction_renew`` and ``compaction_abort``."""

    compaction_id: str = Field(max_length=COMPACTION_ID_LENGTH_MAX)


class CompactionDone(_CompactionBody):
    """The answer of ``compaction_commit``."""

    tablet: PositiveInt
    rowsets_before: NonNegativeInt
    rowsets: NonNegativeInt
    rows: NonNegativeInt
    bytes_written: NonNegativeInt
    bytes_freed: NonNegativeInt


class CompactionSummary(BaseModel):
    """What a distributed compaction of a table has done."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str
    tasks: int
    rowsets_before: int
    """Of the tasks that were committed."""
    rowsets: int
    rows: int
    bytes_written: int
    bytes_freed: int
    conflicts: list[str] = []
    """Why tasks were not committed whose rowsets had changed meanwhile; to compact again merges them."""
