"""Follow: files that appear in a folder, or under a prefix of a bucket, are loaded once each.

A file is one commit, and its row in the table ``nyala_files`` is in the same commit: a file is loaded whole and once,
whatever is killed, and whoever else follows the same folder. A file with a row that does not fit is refused as a whole,
and its row says why.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pyarrow as pa
from pydantic import BaseModel

from ....schemas.errors import InvalidArgumentError, NotFoundError, RowErrors, StoreError, UnavailableError
from ....schemas.message import Message
from ....schemas.phrases import counted
from ....schemas.rows.operation import Operation
from ....schemas.rows.transaction import StagedBatch, TransactionCommit
from ....schemas.rows.write import RowError, Stage, WriteCommand
from ...api.database import Database
from ..folder import Folder, Place
from ..link import Store, StoreLink
from .file_format import ReadOptions
from .input_files import InputFile, SeenFile, seen_files
from .load_job import operation_of, staged, tasks_of
from .load_part import PartResult, load_part

FILES = "nyala_files"
PATIENCE_SECONDS = 300.0
"""How long a store or a folder may be out of reach before the job ends."""
_ATTEMPTS = 3
"""So often a file is read that a disk or a bucket fails to give."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SCHEMA = pa.schema(
    [
        pa.field("target", pa.string(), False),
        pa.field("path", pa.string(), False),
        ("size", pa.int64()),
        ("modified", pa.timestamp("us")),
        ("state", pa.string()),
        ("rows", pa.int64()),
        ("message", pa.string()),
        ("at", pa.timestamp("us")),
    ]
)


class FileState(StrEnum):
    """The outcome of a file that the job which follows a folder has loaded."""

    LOADED = "loaded"
    REFUSED = "refused"
    CHANGED = "changed"
    """It was loaded or refused, and has other content now, which is not loaded."""


class FollowedFile(Message, frozen=True):
    """A file that the job which follows a folder has loaded: a row of the table ``nyala_files``."""

    target: str
    """The table."""
    path: str
    size: int
    modified: datetime
    state: FileState
    rows: int = 0
    message: str = ""
    """Why it was refused."""
    at: datetime

    def row(self) -> pa.RecordBatch:
        """Return it as a row."""
        cells = self.model_dump() | {
            "state": self.state.value,
            "modified": _plain(self.modified),
            "at": _plain(self.at),
        }
        return pa.RecordBatch.from_pylist([cells], schema=_SCHEMA)


class FollowResult(BaseModel):
    """The outcome of the job that follows a folder and loads its files."""

    table: str
    loaded: int = 0
    refused: int = 0
    rows: int = 0
    left: int = 0
    """Files that kept changing, or could not be read, when it ended."""


Report = Callable[[FollowedFile], None]


def follow(
    store: Store,
    table: str,
    place: Place,
    *,
    op: str | Operation = Operation.UPSERT,
    options: ReadOptions | None = None,
    once: bool = False,
    interval: float = 5.0,
    stop: threading.Event | None = None,
    report: Report = lambda file: None,
) -> FollowResult:
    """Load each file that is in a folder, or under a prefix such as ``s3://bucket/in``, and each that comes, once.

    It looks every ``interval`` seconds, until ``stop`` is set; with ``once`` it ends when all files are done that are
    there, and leaves those that keep changing, or cannot be read. Names that begin with ``_`` or ``.`` are ignored:
    write a file under such a name, and rename it. A file of this machine is taken when it did not change between two
    looks; with ``once`` as it is. Files go in the order of their times. A file whose content changes later is not
    loaded again. ``report`` is called for each file.

    Raises:
        NotFoundError: the table, or a folder of this machine, does not exist.
        InvalidArgumentError: several servers share the table, so that a commit there is not one commit.
        UnavailableError: store or folder were out of reach for five minutes, or with ``once`` at all.
    """
    follower = _Follower(StoreLink.to(store), table, Folder.at(place), operation_of(op), options or ReadOptions(), once)
    result, stopped = FollowResult(table=table), stop or threading.Event()
    reached, looks = time.monotonic(), 0
    while not stopped.is_set():
        looks += 1
        try:
            for file in follower.poll(stopped):
                result.loaded += file.state is FileState.LOADED
                result.refused += file.state is FileState.REFUSED
                result.rows += file.rows
                report(file)
            reached = time.monotonic()
        except (UnavailableError, OSError) as error:
            if once or time.monotonic() - reached > PATIENCE_SECONDS:
                raise error if isinstance(error, StoreError) else UnavailableError(str(error)) from None
        result.left = follower.left
        if once and (not follower.left or looks > _ATTEMPTS):
            break
        stopped.wait(min(interval, 1.0) if once else interval)
    return result


class _NotNowError(Exception):
    """A file is to be looked at again."""


class _Follower:
    def __init__(
        self, link: StoreLink, table: str, folder: Folder, op: Operation, options: ReadOptions, once: bool
    ) -> None:
        self._link, self._table, self._folder, self._op, self._options = link, table, folder, op, options
        self._takes_at_once = once or not folder.is_local
        about = link.service.describe_table(table)
        if folder.is_local and not folder.exists:
            raise NotFoundError(f"there is no folder {folder}")
        if len(about.stores) > 1:
            raise InvalidArgumentError(
                f"several servers share the table {table!r}, and one commit cannot cover several servers: load the "
                "files with `nyala load`"
            )
        database = Database(link.service)
        self._files = database.create_table(
            FILES,
            _SCHEMA,
            ["target", "path"],
            if_not_exists=True,
            comment="Followed files: docs/pipeline.md",
        )
        self._about_files = link.service.describe_table(FILES)
        self._known = self._read_known()
        self._changed: set[str] = set()
        self._failed: Counter[str] = Counter()
        self._seen: dict[str, tuple[int, int]] = {}
        self.left = 0
        """How many files the last look left for later."""

    def poll(self, stopped: threading.Event) -> Iterator[FollowedFile]:
        """Look once, and load the files that are new and complete."""
        present = sorted(seen_files(self._folder), key=lambda each: (each.mtime, each.path))
        before, self._seen = self._seen, {each.path: (each.size, each.mtime) for each in present}
        self.left = 0
        for each in present:
            if stopped.is_set():
                return
            now = each.size, each.mtime
            if (known := self._known.get(each.name)) is not None:
                if known != _as_stored(each) and each.name not in self._changed:
                    self._changed.add(each.name)
                    yield self._outcome(each, FileState.CHANGED, message="its content changed; it is not loaded again")
            elif self._takes_at_once or before.get(each.path) == now:
                try:
                    outcome = self._loaded(each)
                except _NotNowError:
                    self.left += 1
                    continue
                self._known[each.name] = _as_stored(each)
                if outcome is not None:
                    yield outcome

    def _loaded(self, seen: SeenFile) -> FollowedFile | None:
        """Load a file; return its outcome, or None if another process was first. Raises _NotNowError: it is gone, it
        changes, or it could not be read."""
        try:
            return self._load(seen, seen.input_file(self._options))
        except InvalidArgumentError as error:
            if not seen.is_same():
                raise _NotNowError from None
            if isinstance(error.__cause__, OSError):
                self._failed[seen.path] += 1
                if self._failed[seen.path] < _ATTEMPTS:
                    raise _NotNowError from None
            return self._refused(seen, error.message)

    def _load(self, seen: SeenFile, file: InputFile) -> FollowedFile | None:
        service = self._link.service
        about = service.describe_table(self._table)
        # A name of its own: a file that somebody lets follow again is not taken for the one that was committed.
        tasks = staged(list(tasks_of(self._link, about, file, self._op, uuid.uuid4().hex, service.now())))
        transaction = tasks[0].stage.transaction if tasks and tasks[0].stage else uuid.uuid4().hex
        try:
            parts = [load_part(task) for task in tasks]
            if not seen.is_same():
                raise _NotNowError
            if wrong := [error for part in parts for error in part.errors]:
                count = sum(part.error_count for part in parts)
                place = f"row {wrong[0].row}" if wrong[0].line is None else f"line {wrong[0].line}"
                raise InvalidArgumentError(
                    f"{counted(count, 'row')} cannot be loaded, the first in {place}: {wrong[0].message}"
                )
            outcome = self._outcome(seen, FileState.LOADED, sum(part.rows for part in parts))
            return self._committed(seen, transaction, parts, outcome)
        except (InvalidArgumentError, _NotNowError):
            service.abort_transaction(transaction)
            raise

    def _committed(
        self, seen: SeenFile, transaction: str, parts: list[PartResult], outcome: FollowedFile
    ) -> FollowedFile | None:
        service = self._link.service
        stage = Stage(transaction=transaction, part="nyala_files", table_id=self._about_files.table_id)
        command = WriteCommand(table=FILES, op=Operation.INSERT, stage=stage)
        noted = service.stage(command, [StagedBatch(outcome.row())])
        names = [name for part in parts if part.staged for name in part.staged.parts]
        result = service.commit_transaction(TransactionCommit(transaction=transaction, parts=[*names, *noted.parts]))
        if not result.error_count:
            return outcome
        service.abort_transaction(transaction)
        if any(getattr(error, "table", None) == FILES for error in result.errors):
            return None
        first: RowError = result.errors[0]
        return self._refused(
            seen, f"the table refuses {counted(result.error_count, 'row')}, the first because {first.message}"
        )

    def _refused(self, seen: SeenFile, why: str) -> FollowedFile | None:
        outcome = self._outcome(seen, FileState.REFUSED, message=why)
        try:
            self._files.insert(outcome.row())
        except RowErrors:  # another process was first
            return None
        return outcome

    def _outcome(self, seen: SeenFile, state: FileState, rows: int = 0, message: str = "") -> FollowedFile:
        size, modified = _as_stored(seen)
        return FollowedFile(
            target=self._table,
            path=seen.name,
            size=size,
            modified=modified,
            state=state,
            rows=rows,
            message=message,
            at=datetime.now(UTC),
        )

    def _read_known(self) -> dict[str, tuple[int, datetime]]:
        rows = self._files.scan(columns=["path", "size", "modified"], where=[("target", "=", self._table)]).to_arrow()
        return {row["path"]: (row["size"], row["modified"].replace(tzinfo=UTC)) for row in rows.to_pylist()}


def _as_stored(seen: SeenFile) -> tuple[int, datetime]:
    return seen.size, _EPOCH + timedelta(microseconds=seen.mtime // 1_000)


def _plain(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(tzinfo=None)
