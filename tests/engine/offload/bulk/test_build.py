"""Tasks that sort the rows of a tablet: however many bytes a column has."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.subdirectory import DirectoryFileSystem
from nyala.engine.offload.bulk import build
from nyala.engine.offload.bulk.build import build_tablet
from nyala.engine.offload.bulk.runs import ScratchRun, read_run, write_runs
from nyala.engine.offload.bulk.target import Target
from nyala.schemas.errors import InvalidArgumentError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.store.bulk import ImportBegin, ImportCommit
from tests.engine.offload.bulk.importing import rows_of
from tests.engine.subject import Subject, batch


def run_of(batch: pa.RecordBatch) -> ScratchRun:
    return ScratchRun(2, "", batch.num_rows, batch.nbytes, 0, 0)


def built_from(subject: Subject, batches: list[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Build and commit files from runs that have these rows; return the table's."""
    plan = subject.store.import_begin(ImportBegin(table="t"))
    reads = iter(batches)
    monkeypatch.setattr(build, "read_run", lambda *_: [next(reads)])
    staging = DirectoryFileSystem(subject.fs, plan.staging)
    runs = list(map(run_of, batches))
    files = build_tablet(Target(plan), plan.first_file_id, runs, staging, staging, "only")
    subject.store.import_commit(ImportCommit(import_id=plan.import_id, files=tuple(files)))
    return subject.scan(ordered=True)


def rows(keys: list[int], text: pa.Array | None = None) -> pa.RecordBatch:
    text = pa.array([f"text {key}" if key % 3 else None for key in keys]) if text is None else text
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.int64()), pa.array([key % 100 for key in keys], pa.int32()), text], names=["1", "2", "3"]
    )


def test_more_text_than_an_array_of_strings_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject()
    assert [column.id for column in subject.tablet.schema.columns] == [1, 2, 3]
    text = pa.array(["x" * 60_000] * 1_000)
    batches = [rows(list(range(number, 40_000, 40)), text) for number in range(40)]
    assert sum(batch.nbytes for batch in batches) > 1 << 31
    monkeypatch.setattr(build, "_spans", lambda *_: [(0, 90)])  # the first file of many
    found = built_from(subject, batches, monkeypatch)
    assert found == [(key, key % 100, "x" * 60_000) for key in range(90)]
    subject.store.close()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [0, 1 << 30], ids=["in batches", "combined"])
def test_rows_come_in_order_from_any_batches(monkeypatch: pytest.MonkeyPatch, seed: int, most: int) -> None:
    monkeypatch.setattr(build, "_COMBINED_BYTES", most)
    monkeypatch.setattr(build, "file_count", lambda *_: 3)
    random, subject = Random(seed), Subject()
    keys = random.sample(range(1_000), 300)
    cuts = [0, *sorted(random.sample(range(1, 300), seed)), 300]
    batches = [rows(keys[first:last]) for first, last in pairwise(cuts)]
    found = built_from(subject, batches, monkeypatch)
    assert found == [(key, key % 100, f"text {key}" if key % 3 else None) for key in sorted(keys)]
    assert len(np.unique([row[0] for row in found])) == 300
    subject.store.close()


def test_batches_are_combined_as_far_as_one_may_be_large() -> None:
    limits = Limits(batch_bytes=100_000)
    subject = Subject(limits=limits)
    plan = subject.store.import_begin(ImportBegin(table="t"))
    batches = [batch(rows_of(*range(first, first + 700))) for first in range(0, 7_000, 700)]
    assert all(each.nbytes < limits.batch_bytes < 10 * each.nbytes for each in batches)
    scratch = MemoryFileSystem()
    (run,) = write_runs(Target(plan), batches, scratch, "only")
    assert run.rows == 7_000 and len(read_run(scratch, run)) < len(batches)
    with pytest.raises(InvalidArgumentError, match="a batch is one commit, of at most 100,000 bytes"):
        write_runs(Target(plan), [batch(rows_of(*range(7_000)))], scratch, "large")
    subject.store.close()
