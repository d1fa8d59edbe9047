"""Distributed compaction: messages between the store and processes that merge rowsets outside it.

``compaction_begin`` returns a plan of tasks, each with some rowsets of a tablet, and keeps their files. The holder of
the plan merges them into new files beside them. ``compaction_commit`` installs the files of one task.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from ..message import Message, new_list
from ..table.table import TableSchema
from .bucket_place import InBucket

COMPACTION_ID_LENGTH_MAX = 64
COMPACTION_SECONDS_MAX = 7 * 86_400
TASK_FILES_MAX = 10_000
"""Files of one task: this many ids are reserved for it."""


class CompactionBegin(Message, frozen=True, extra="forbid"):
    """The body of ``compaction_begin``: the store hands out rowset files to merge outside it."""

    table: str
    tablets: tuple[PositiveInt, ...] | None = None
    """Only these; None: all tablets of the server."""
    replace: bool = False
    """Whether to end other compactions of these tablets' rowsets, such as those of a killed job; otherwise they block
    this one until they expire."""
    ttl_seconds: int = Field(default=3600, ge=1, le=COMPACTION_SECONDS_MAX)
    """After this many seconds without a renewal, uncommitted tasks are dropped."""


class CompactionTask(Message, frozen=True, extra="forbid"):
    """A task of an outside compaction: rowsets of one tablet to merge."""

    number: NonNegativeInt
    tablet: PositiveInt
    entry: dict[str, Any]
    """The tablet's entry in the manifest (docs/format/manifest.md), with only these rowsets."""
    timestamp: NonNegativeInt
    """The outputs' base shows the rows at this time; no file has a later change."""
    history_mark: NonNegativeInt
    """Leave out what no snapshot from here on sees."""
    directory: str
    """Within the store's directory; the files are in ``inputs`` below it. In a bucket rowsets have their own names, and
    only files of attempts are below it."""
    first_file_id: PositiveInt
    """The first of ``TASK_FILES_MAX`` numbers for the outputs' files. Two attempts may share them."""
    rows: NonNegativeInt
    bytes: NonNegativeInt


class CompactionPlan(InBucket, frozen=True, extra="forbid"):
    """The answer of ``compaction_begin``: the rowset files that the store hands out."""

    compaction_id: str
    table: str
    schema_: TableSchema
    """Columns with their ids, types, encodings and compressions."""
    tasks: tuple[CompactionTask, ...]
    rowset_bytes: PositiveInt
    """The target bytes, and the maximum rows, of an output."""
    rowset_rows: PositiveInt
    ttl_seconds: PositiveInt


class MergedFile(Message, frozen=True, extra="forbid"):
    """The description of a file that an outside compaction has written."""

    file_id: PositiveInt
    bytes: PositiveInt
    crc: NonNegativeInt
    """The CRC-32 of the whole file."""


class MergedRowset(Message, frozen=True, extra="forbid"):
    """The description of a rowset that an outside compaction has written. Keys are encoded, in hexadecimal."""

    base: MergedFile
    undo: MergedFile | None = None
    rows: PositiveInt
    min_key: str
    max_key: str


class MergedTask(Message, frozen=True, extra="forbid"):
    """The result of a task of an outside compaction."""

    number: NonNegativeInt
    attempt: str = Field(pattern="^[0-9a-f]{1,64}$")
    """The directory of its files, within the task's."""
    rowsets: tuple[MergedRowset, ...] = Field(max_length=TASK_FILES_MAX)
    """In key order."""
    is_history_lost: bool
    """Whether history was left out."""


class CompactionCommit(Message, frozen=True, extra="forbid"):
    """The body of ``compaction_commit``: the merged files that the store installs."""

    compaction_id: str = Field(max_length=COMPACTION_ID_LENGTH_MAX)
    task: MergedTask


class CompactionName(Message, frozen=True, extra="forbid"):
    """The body of ``compaction_renew`` and ``compaction_abort``: which outside compaction of the store."""

    compaction_id: str = Field(max_length=COMPACTION_ID_LENGTH_MAX)


class CompactionDone(Message, frozen=True, extra="forbid"):
    """The answer of ``compaction_commit``: what the store has installed."""

    tablet: PositiveInt
    rowsets_before: NonNegativeInt
    rowsets: NonNegativeInt
    rows: NonNegativeInt
    bytes_written: NonNegativeInt
    bytes_freed: NonNegativeInt


class CompactionSummary(Message, frozen=True, extra="ignore"):
    """The result of a distributed compaction of a table."""

    table: str
    tasks: int
    rowsets_before: int
    """Of the committed tasks."""
    rowsets: int
    rows: int
    bytes_written: int
    bytes_freed: int
    conflicts: list[str] = Field(default_factory=new_list)
    """Why tasks were not committed: their rowsets had changed. Compact again to merge them."""
