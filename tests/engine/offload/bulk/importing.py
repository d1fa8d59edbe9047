"""Build the files of an import in this process, as executors do in others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

import pyarrow as pa

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.fs.subdirectory import DirectoryFileSystem
from nyala.engine.offload.bulk.build import build_tablet, number_files
from nyala.engine.offload.bulk.runs import write_runs
from nyala.engine.offload.bulk.target import Target
from nyala.schemas.rows.write import WriteResult
from nyala.schemas.store.bulk import ImportBegin, ImportCommit, ImportFile, ImportMode, ImportPlan
from tests.engine.subject import Row, Subject, batch

_attempts = count()


def rows_of(*keys: int, v: int = 1) -> list[Row]:
    """Rows of these keys."""
    return [(key, v, f"import {key}") for key in keys]


def built(plan: ImportPlan, disk: FileSystem, inputs: Iterable[pa.RecordBatch]) -> list[ImportFile]:
    """Build the files: one task of the first stage for each batch, one of the second for each tablet."""
    target, scratch = Target(plan), MemoryFileSystem()
    staging = DirectoryFileSystem(disk, plan.staging)
    runs = [run for number, each in enumerate(inputs) for run in write_runs(target, [each], scratch, f"task{number}")]
    tasks = number_files(target, runs).values()
    token = f"attempt{next(_attempts)}"
    return [file for first, found in tasks for file in build_tablet(target, first, found, scratch, staging, token)]


def bring(subject: Subject, rows: Sequence[Row], mode: str = "insert_only") -> WriteResult:
    """Import rows into the table of a subject, and remember what it must show then."""
    plan = subject.store.import_begin(ImportBegin(table="t"))
    files = built(plan, subject.fs, [batch(list(rows))])
    asked = ImportCommit(import_id=plan.import_id, files=tuple(files), mode=ImportMode(mode))
    result = subject.store.import_commit(asked)
    subject.state = {**subject.state, **{row[0]: row for row in rows}}
    subject.history.append((result.timestamp, subject.state))
    return result
