"""Copy: a new table, in the same store or another, with the rows of a table at a snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pydantic import BaseModel

from ...schemas.cells.timestamp import Moment
from ...schemas.errors import ConflictError, SnapshotTooOldError
from ...schemas.protocol.service import StoreService
from ...schemas.rows.scan import ScanSpec
from ...schemas.store.description import TableDescription
from ...schemas.table.partition_schema import sum_of
from ..executors.choice import ExecutorChoice, executor_of
from ..executors.progress import Show
from .definition import Levels
from .link import Store, StoreLink
from .splits import SPLIT_BYTES, TableSplit, TableSplits, TabletLabel, check_count, count_rows, snapshot_of, split_table
from .under_way import TableUnderWay, check_free
from .writing import FillTask


class CopyResult(BaseModel, frozen=True):
    """The outcome of a job that copies a table."""

    table: str
    snapshot: int
    """Of the source: the copy has the source's rows at it."""
    rows: int
    """Written by this run."""
    resumed: bool


@dataclass(frozen=True)
class SplitTask(FillTask):
    """A task of a job that copies a table: write the rows of one split."""

    source: StoreLink
    split: TableSplit

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See FillTask."""
        stream = self.source.scan(self.split)
        if [column.name for column in self.was.columns] != stream.schema.names:
            raise ConflictError(f"the columns of table {self.was.name!r} changed during the copy: copy it again")
        return stream.batches


def copy_table(
    source: Store,
    target: Store,
    table: str,
    *,
    name: str | None = None,
    as_of: Moment | None = None,
    partition_by: Levels | None = None,
    split_bytes: int = SPLIT_BYTES,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> CopyResult:
    """Run a job that copies a table's definition and its rows at a snapshot (default: now) to the table ``name`` of
    another store.

    ``partition_by`` replaces its partitions. Until all rows are copied, the copy is named
    ``<name>.copying-<snapshot>``. The next run of the same copy resumes an interrupted one, at its snapshot. To follow
    the source from there, apply its ``changes`` since the snapshot.

    Raises:
        NotFoundError: the source has no such table.
        AlreadyPresentError: the target has a table of that name.
        UnavailableError: another run makes the same copy; the message names it.
        SnapshotTooOldError: the snapshot is older than the source's history.
        InvalidArgumentError: the copy that an earlier run began has other columns.
        ConflictError: the columns changed meanwhile.
    """
    reads, writes = StoreLink.to(source), StoreLink.to(target)
    runner = executor_of(executor, workers)
    about = reads.service.describe_table(table)
    name = name or table
    check_free(writes.service, name)
    copies = partial(_unfinished, writes.service, name) if as_of is None else list[str]
    begun = max(map(_snapshot, copies()), default=None)
    snapshot = snapshot_of(reads.service, as_of) if begun is None else begun
    unfinished = f"{name}.copying-{snapshot}"
    cut = _split(reads.service, about, snapshot, split_bytes, unfinished)
    expected = count_rows(reads.service, ScanSpec(table=table, as_of=snapshot))
    places = _places(cut)
    origin = ", ".join(sorted(f"table {each.table_id} of {each.store_uuid}" for each in about.stores)) or str(reads.url)
    rows = 0
    among = sum_of(cut.tablets.values())
    with TableUnderWay(writes.service, name, unfinished, about, origin, partition_by, among, copies) as under_way:
        done = set(under_way.done)
        tasks = [
            SplitTask(about, writes, under_way.table, reads, split)
            for split in cut.splits
            if places[split.label] not in done
        ]
        left = Counter(task.split.label for task in tasks)
        for index, written in under_way.filled(tasks, runner, f"copy {table}", show):
            rows += written
            label = tasks[index].split.label
            left[label] -= 1
            if not left[label]:
                done.add(places[label])
                under_way.note(sorted(done))
        check_count(f"table {table!r}", count_rows(writes.service, ScanSpec(table=unfinished)), expected)
        if not _names(about).items() <= _names(reads.service.describe_table(table)).items():
            raise ConflictError(
                f"the columns of table {table!r} changed during the copy: drop {unfinished!r}, and copy again"
            )
        under_way.complete()
    return CopyResult(table=name, snapshot=snapshot, rows=rows, resumed=begun is not None)


def _unfinished(service: StoreService, name: str) -> list[str]:
    """Return the names of the unfinished copies."""
    mark = f"{name}.copying-"
    return [table for table in service.tables() if table.startswith(mark) and table.removeprefix(mark).isdigit()]


def _names(about: TableDescription) -> dict[int, str]:
    return {column.id: column.name for column in about.columns}


def _snapshot(unfinished: str) -> int:
    return int(unfinished.rpartition("-")[2])


def _places(cut: TableSplits) -> dict[TabletLabel, int]:
    """Return a number for each tablet that stays the same when it moves: its position among all partitions."""
    order = {partition: number for number, partition in enumerate(sorted(cut.tablets.values(), key=str))}
    return {label: order[partition] for label, partition in cut.tablets.items()}


def _split(
    service: StoreService, about: TableDescription, snapshot: int, split_bytes: int, unfinished: str
) -> TableSplits:
    spec = ScanSpec(table=about.name, columns=[column.name for column in about.columns], as_of=snapshot)
    try:
        return split_table(service, spec, split_bytes)
    except SnapshotTooOldError as error:
        raise SnapshotTooOldError(f"{error.message}. Drop {unfinished!r} and copy again") from None
