"""Verification: the checksum of a table at a snapshot, by tablet, and the comparison of two tables."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....schemas.cells.timestamp import Moment
from ....schemas.cells.types import LogicalType
from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.scan import ScanSpec
from ....schemas.store.description import TableDescription
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.executor import Executor
from ...executors.progress import Show, run_tasks
from ..link import Store, StoreLink
from ..splits import SPLIT_BYTES, TableSplit, check_count, count_rows, in_order, snapshot_of, split_table
from .tablet_sums import checksum_of
from .verification import TableChecksum, Verification

if TYPE_CHECKING:
    from .row_hash import Sums


@dataclass(frozen=True)
class ChecksumTask:
    """A task of a verification: read one split and sum the hashes of its rows."""

    link: StoreLink
    split: TableSplit
    key: tuple[str, ...]


@dataclass(frozen=True)
class Checked:
    """The checksum of a table in a verification, with its sums by bucket."""

    checksum: TableChecksum
    total: Sums


def checksum(
    store: Store,
    table: str,
    *,
    as_of: Moment | None = None,
    split_bytes: int = SPLIT_BYTES,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> TableChecksum:
    """Return the checksum of a table's rows at a snapshot (default: now).

    Raises:
        NotFoundError: the table does not exist.
        SnapshotTooOldError: ``as_of`` is older than its history.
    """
    link = StoreLink.to(store)
    return checked(link, table, snapshot_of(link.service, as_of), executor_of(executor, workers), show, split_bytes)[0]


def verify(
    left: Store,
    right: Store,
    table: str,
    *,
    right_table: str | None = None,
    as_of: Moment | None = None,
    right_as_of: Moment | None = None,
    differences: int = 100,
    split_bytes: int = SPLIT_BYTES,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> Verification:
    """Verify that tables of two stores have the same rows: compare them, each at its own snapshot (default: now).

    If their checksums differ, the result names up to ``differences`` keys: those on one side only, and those whose rows
    differ. Tablets, files, the order of columns and the width of types do not matter.

    Raises:
        NotFoundError: a store has no such table.
    """
    from .differences import differing_keys

    runner = executor_of(executor, workers)
    sides = []
    for store, name, moment in ((left, table, as_of), (right, right_table or table, right_as_of)):
        link = StoreLink.to(store)
        sides.append((link, link.service.describe_table(name), snapshot_of(link.service, moment)))
    columns = column_differences(sides[0][1], sides[1][1])
    found = [
        _checked(link, about, snapshot, runner, show, split_bytes, f"checksum {side}")
        for (link, about, snapshot), side in zip(sides, ("left", "right"), strict=True)
    ]
    mine, other = found
    answer = Verification(equal=False, left=mine.checksum, right=other.checksum, columns=columns)
    if columns:
        return answer.model_copy(update={"complete": False})
    if mine.checksum.is_same(other.checksum):
        return answer.model_copy(update={"equal": True})
    seen = differing_keys(
        [(link, about.name, snapshot) for link, about, snapshot in sides],
        sides[0][1].primary_key,
        (mine.total, other.total),
        differences,
        runner,
        show,
        split_bytes,
    )
    return answer.model_copy(update={"tablets": seen.tablets, "differences": seen.keys, "complete": seen.complete})


def checked(
    link: StoreLink, table: str, snapshot: int, executor: Executor, show: Show, split_bytes: int = SPLIT_BYTES
) -> tuple[TableChecksum, Sums]:
    """Return the checksum of a table at a snapshot for a verification, and its sums by bucket."""
    found = _checked(link, link.service.describe_table(table), snapshot, executor, show, split_bytes, "checksum")
    return found.checksum, found.total


def column_differences(left: TableDescription, right: TableDescription) -> list[str]:
    """Return, as text, why a verification cannot compare the rows of two tables."""
    found = []
    if left.primary_key != right.primary_key:
        keys = (", ".join(about.primary_key) for about in (left, right))
        found.append("the key is {} on the left, {} on the right".format(*keys))
    mine = {column.name: column.logical for column in left.columns}
    other = {column.name: column.logical for column in right.columns}
    found += [f"only the left has the column {name!r}" for name in mine if name not in other]
    found += [f"only the right has the column {name!r}" for name in other if name not in mine]
    found += [
        f"column {name!r} is {kind} on the left, {other[name]} on the right"
        for name, kind in mine.items()
        if name in other and _family(kind) != _family(other[name])
    ]
    return found


def _family(kind: LogicalType) -> tuple[str, int]:
    """Return a value that is equal for types that hash equal values alike."""
    if kind.is_integer:
        return "integer", 0
    if kind.is_floating:
        return "floating", 0
    return ("text" if kind.is_text else kind.name), kind.scale


def _checked(
    link: StoreLink,
    about: TableDescription,
    snapshot: int,
    executor: Executor,
    show: Show,
    split_bytes: int,
    what: str,
) -> Checked:
    spec = ScanSpec(table=about.name, columns=[column.name for column in about.columns], as_of=snapshot)
    key = tuple(about.primary_key)
    cut = split_table(link.service, spec, split_bytes)
    expected = count_rows(link.service, spec)
    tasks = [ChecksumTask(link, split, key) for split in cut.splits]
    by_tablet = {label: new_sums() for label in in_order(cut.tablets)}
    total = new_sums()
    for index, sums in run_tasks(executor, sum_up, tasks, lambda part: part.count, f"{what} {about.name}", show):
        by_tablet[tasks[index].split.label].merge(sums)
        total.merge(sums)
    check_count(f"table {about.name!r}", total.count, expected)
    return Checked(
        TableChecksum(
            table=about.name,
            snapshot=snapshot,
            rows=total.count,
            checksum=total.text,
            tablets=[checksum_of(label, sums.count, sums.text) for label, sums in by_tablet.items()],
        ),
        total,
    )


def sum_up(task: ChecksumTask) -> Sums:
    """Return the checksums of the rows of one split, for a verification."""
    sums = new_sums()
    for batch in task.link.scan(task.split).batches:
        sums.add(batch, task.key)
    return sums


def can_sum() -> bool:
    """Return whether a backup or a verification can compute checksums here: that needs numpy."""
    return importlib.util.find_spec("numpy") is not None


def new_sums() -> Sums:
    """Return an empty checksum of rows. numpy is imported only here.

    Raises:
        InvalidArgumentError: numpy is missing.
    """
    try:
        from .row_hash import Sums
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(f"checksums need {error.name}: pip install 'nyala[jobs]'") from error
    return Sums()
