"""Bulk import: loads data outside the server, in many processes that build the table's files themselves.

It has two stages, each a plain function over tasks that can be sent to other processes: ``write_scratch`` reads some of
the input and writes its rows by tablet into scratch files; ``build`` sorts and encodes the rows of one tablet. The
server then attaches the files at one timestamp. Tasks need only the store's directory, or the storage of its imports,
at the path ``directory``, or the bucket of the store.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ...engine.bucket.files import BucketFileSystem
from ...engine.bucket.opening import bucket_of
from ...engine.fs.arrow import ArrowFileSystem
from ...engine.fs.encryption.opening import store_files
from ...engine.fs.filesystem import FileSystem
from ...engine.fs.local import LocalFileSystem
from ...engine.fs.subdirectory import DirectoryFileSystem
from ...engine.fs.tree import remove_tree
from ...engine.offload.bulk.build import build_tablet, number_files
from ...engine.offload.bulk.runs import ScratchRun, write_runs
from ...engine.offload.bulk.target import Target
from ...schemas.errors import InvalidArgumentError, NotFoundError, StoreError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.write import WriteResult
from ...schemas.store.bucket_place import BucketPlace
from ...schemas.store.bulk import ImportBegin, ImportCommit, ImportFile, ImportMode, ImportPlan
from ..convert.data import WriteData
from ..convert.hidden_names import is_hidden
from ..convert.int96 import opened_twice, uncut
from ..executors.choice import executor_of
from ..executors.executor import results

Task = TypeVar("Task")
Result = TypeVar("Result")
Directory = str | Path | FileSystem
"""A directory as the processes that run tasks see it, or a URI; in this process also a file system of the engine."""

_RUNS = "runs"
_CACHE_BYTES = 256 << 20
"""What a task keeps of the bucket on its disk, beside what it writes."""
_BATCH_ROWS = 1 << 17
_TASK_BYTES = 256 << 20
"""Uncompressed bytes of a Parquet file for one task; row groups are not divided."""


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """A part of a bulk import's source: some row groups of a Parquet file."""

    path: str
    row_groups: tuple[int, ...]

    def reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        plain = pq.ParquetFile(self.path)  # not mapped: if the file were truncated, that would kill the process
        file, names = opened_twice(plain, lambda: self.path)
        groups = list(self.row_groups)
        batches = file.iter_batches(_BATCH_ROWS, row_groups=groups, use_threads=False)
        if names:
            batches = uncut(batches, plain.iter_batches(_BATCH_ROWS, groups, columns=names, use_threads=False))
        return pa.RecordBatchReader.from_batches(file.schema_arrow, batches)


@dataclass(frozen=True, slots=True)
class _Place:
    """A directory within a directory, or within a store in a bucket."""

    where: Directory | BucketPlace
    path: str

    @contextmanager
    def opened(self) -> Iterator[FileSystem]:
        """Yield the files; what is written into a bucket is on this machine's disk until it is there."""
        with store_files_at(self.where) as files:
            yield DirectoryFileSystem(files, self.path)


@dataclass(frozen=True)
class ScratchTask:
    """A task of a bulk import's first stage, for ``write_scratch``."""

    plan: ImportPlan
    source: Any
    """A ``ParquetPart``, or data in any form that ``write`` takes."""
    scratch: _Place


@dataclass(frozen=True)
class BuildTask:
    """A task of a bulk import's second stage, for ``build``."""

    plan: ImportPlan
    first_file_id: int
    runs: tuple[ScratchRun, ...]
    scratch: _Place
    staging: _Place


def write_scratch(task: ScratchTask) -> list[ScratchRun]:
    """The first stage of a bulk import: check rows and write them by tablet; raises as
    ``engine.offload.bulk.runs.write_runs``."""
    source = task.source.reader() if isinstance(task.source, ParquetPart) else task.source
    batches = WriteData(source, task.plan.schema_.columns)
    with task.scratch.opened() as scratch:
        runs = write_runs(Target(task.plan), batches, scratch, uuid.uuid4().hex)
        if isinstance(task.scratch.where, BucketPlace):
            for run in runs:
                scratch.sync_file(run.path)  # else it is not there for others
        return runs


def build(task: BuildTask) -> list[ImportFile]:
    """The second stage of a bulk import: write a tablet's rowset files; raises as
    ``engine.offload.bulk.build.build_tablet``."""
    target, token = Target(task.plan), uuid.uuid4().hex
    with task.scratch.opened() as scratch, task.staging.opened() as staging:
        return build_tablet(target, task.first_file_id, task.runs, scratch, staging, token)


def bulk_import(
    store: StoreService,
    table: str,
    source: Any,
    *,
    directory: Directory | None = None,
    executor: Any = None,
    scratch: Directory | None = None,
    mode: str | ImportMode = ImportMode.INSERT_ONLY,
    ttl_seconds: int = 24 * 3600,
) -> WriteResult:
    """Import ``source`` into a table as one commit, with files that are built outside the server: see
    ``Table.bulk_import``."""
    asked = _mode(mode)
    parts = _parts(source)
    plan = store.import_begin(ImportBegin(table=table, ttl_seconds=ttl_seconds))
    try:
        where = plan.storage or shared_place(store, directory, plan.bucket, plan.staging, "files are built there")
        files, truncated = _built(plan, parts, where, scratch, executor)
        result = store.import_commit(ImportCommit(import_id=plan.import_id, files=tuple(files), mode=asked))
        return result.model_copy(update={"truncated": truncated})  # the store sees no row
    except BaseException:
        with suppress(StoreError):
            store.import_abort(plan.import_id)
        raise


def _built(
    plan: ImportPlan,
    parts: Sequence[Any],
    where: Directory | BucketPlace,
    scratch: Directory | None,
    executor: Any,
) -> tuple[list[ImportFile], int]:
    """Return the files, and how many cells of their rows were cut to the length of their column."""
    runs_in = _Place(where, f"{plan.staging}/{_RUNS}") if scratch is None else _Place(scratch, plan.import_id)
    with runs_in.opened() as made:
        made.make_directory("")
    try:
        scratches = [ScratchTask(plan, part, runs_in) for part in parts]
        runs = list(chain.from_iterable(ran(executor, write_scratch, scratches)))
        tasks = [
            BuildTask(plan, first, tuple(found), runs_in, _Place(where, plan.staging))
            for first, found in number_files(Target(plan), runs).values()
        ]
        return list(chain.from_iterable(ran(executor, build, tasks))), sum(run.truncated for run in runs)
    finally:
        if scratch is not None:
            remove_tree(file_system(scratch), plan.import_id)


def ran(executor: Any, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
    """Run the tasks of work outside the server and return their results in order; ``executor`` is any that jobs take,
    None means "local"."""
    return results(executor_of("local" if executor is None else executor), function, tasks)


def _mode(mode: str | ImportMode) -> ImportMode:
    try:
        return ImportMode(mode)
    except ValueError:
        known = ", ".join(ImportMode)
        raise InvalidArgumentError(f"unknown import mode {mode!r}; known: {known}") from None


def _parts(source: Any) -> list[Any]:
    """Divide the input into tasks: Parquet files by row groups; other data is one task."""
    if isinstance(source, str | Path):
        source = [source]
    if isinstance(source, Sequence) and source and all(isinstance(each, str | Path) for each in source):
        return [part for path in source for file in _parquet_files(Path(path)) for part in _row_groups(file)]
    return [source]


def _parquet_files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(each for each in path.glob("**/*.parquet") if not is_hidden(each.relative_to(path).as_posix()))
        if not found:
            raise NotFoundError(f"the directory {path} has no *.parquet files")
        return found
    if not path.exists():
        raise NotFoundError(f"there is no file {path}")
    return [path]


def _row_groups(path: Path) -> list[Any]:
    """Return the parts of a file, each of about the size for one task."""
    try:
        metadata = pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(f"{path} is not a Parquet file: {error}") from None
    parts: list[Any] = []
    groups: list[int] = []
    size = 0
    for number in range(metadata.num_row_groups):
        groups.append(number)
        size += metadata.row_group(number).total_byte_size
        if size >= _TASK_BYTES or number == metadata.num_row_groups - 1:
            parts.append(ParquetPart(str(path.absolute()), tuple(groups)))
            groups, size = [], 0
    return parts


def shared_place(
    store: StoreService, directory: Directory | None, bucket: BucketPlace | None, made: str, why: str
) -> Directory | BucketPlace:
    """Return the place of a store's files for work outside its server: the store's directory, recognised by ``made``,
    which it has just made there; or its bucket, which ``directory`` may call by another URL. ``why`` tells users what
    for."""
    if bucket is not None:
        return bucket.model_copy(update={"url": str(directory)} if directory else {})
    where = directory or getattr(store, "directory", None)
    if where is None:
        raise InvalidArgumentError(
            f"give the store's directory, as this process and its executors see it, by --directory or directory=: {why}"
        )
    if not file_system(where).exists(made):
        raise InvalidArgumentError(f"{where} is not the directory of this store: {made} is missing")
    return where


@contextmanager
def store_files_at(where: Directory | BucketPlace) -> Iterator[FileSystem]:
    """Yield the files of a store, for tasks outside its server that build others beside them."""
    if not isinstance(where, BucketPlace):
        yield file_system(where)
        return
    with TemporaryDirectory(prefix="nyala-task-") as cache:
        files = BucketFileSystem(bucket_of(where.url), where.prefix, LocalFileSystem(cache), _CACHE_BYTES, "", own=())
        try:
            yield files
        finally:
            files.close()


def file_system(where: Directory) -> FileSystem:
    """Return the file system of a store's directory for work outside its server; of an encrypted store with the key
    that the environment names."""
    if isinstance(where, str) and "://" in where:
        return ArrowFileSystem.from_uri(where)
    return store_files(where) if isinstance(where, str | Path) else where
