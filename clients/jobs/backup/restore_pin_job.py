"""Restore of a pin: a new table, in the same store or another, with the rows of a table as a kept pin has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import BaseModel

from ....schemas.store.description import TableDescription
from ....schemas.store.pins import KeptPin, OpenedPin, OpenPin
from ...api.pins import pin_id_of
from ...executors.choice import ExecutorChoice, executor_of
from ...executors.progress import Show
from ..definition import Levels
from ..link import Store, StoreLink
from ..under_way import TableUnderWay, check_free
from ..writing import FillTask

if TYPE_CHECKING:
    from ...offline_jobs.direct_scan import DirectSplit


class RestorePinResult(BaseModel, frozen=True):
    """The outcome of a restore of a pin."""

    table: str
    snapshot: int
    """The table shows the source as of then."""
    rows: int


@dataclass(frozen=True)
class PinTask(FillTask):
    """A task of a restore of a pin: write the rows of one split of the pinned files."""

    split: DirectSplit

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See FillTask."""
        return self.split.batches()


def restore_pin(
    source: Store,
    pin: str | KeptPin,
    target: Store | None = None,
    *,
    table: str | None = None,
    name: str | None = None,
    directory: Any = None,
    partition_by: Levels | None = None,
    executor: ExecutorChoice = "local",
    workers: int | None = None,
    show: Show = "auto",
) -> RestorePinResult:
    """Create the table ``name`` (default: its name then) with the rows of a kept pin of ``source``, in that store or in
    ``target``.

    ``table`` is the table's name then, and may be left out if the pin has one. The tasks read the pinned files, past
    the server; ``directory`` is where they see the source's, as in ``Table.direct_scan``. Until all rows are there, the
    table is named ``<name>.restoring-<snapshot>``.

    Raises:
        NotFoundError: there is no such pin, or it does not have the table.
        AlreadyPresentError: the target has a table of that name.
        InvalidArgumentError: the pin has several tables and none is named, or the directory is missing.
    """
    from ...offline_jobs.direct_scan import pinned_scan  # needs the engine, which clients of a server may lack

    reads = StoreLink.to(source)
    writes = reads if target is None else StoreLink.to(target)
    pin_id = pin_id_of(reads.service, pin)
    was = _described(reads.service.open_pin(OpenPin(pin_id=pin_id, table=table)))
    columns = [column.name for column in was.columns]
    scan = pinned_scan(reads.service, pin_id, was.name, columns, directory=directory)
    name = name or was.name
    check_free(writes.service, name)
    runner = executor_of(executor, workers)
    origin, unfinished = f"pin {pin_id} of {reads.url or 'this store'}", f"{name}.restoring-{scan.snapshot}"
    with TableUnderWay(writes.service, name, unfinished, was, origin, partition_by) as under_way:
        tasks = [PinTask(was, writes, under_way.table, split) for split in scan.splits]
        rows = sum(written for _, written in under_way.filled(tasks, runner, f"restore {name}", show))
        under_way.complete()
    return RestorePinResult(table=name, snapshot=scan.snapshot, rows=rows)


def _described(opened: OpenedPin) -> TableDescription:
    """Return the description of a table as it was pinned."""
    pinned, schema = opened.pinned, opened.pinned.schema_
    return TableDescription(
        name=pinned.table,
        table_id=pinned.table_id,
        schema_version=schema.version,
        columns=list(schema.columns),
        primary_key=[column.name for column in schema.key],
        unique_key=schema.unique_key,
        partitions=pinned.partitions.described(schema),
        options=opened.options,
        stores=[],
        cell_bytes_before=schema.cell_bytes_before,
    )
