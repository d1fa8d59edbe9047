"""A table as a ``pyarrow.dataset``: what DataFusion, DuckDB, polars and pyarrow read, with filters in SQL's logic."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs

from ....schemas.errors import InvalidArgumentError
from ....schemas.rows.scan import ScanSpec
from ....schemas.rows.scan_plan import ScanSplit
from ....schemas.store.description import TableDescription
from .begun import BegunPart, BegunRead
from .parts import PushedPart, conjuncts, part_of
from .pushed import PushedFilter, pushed_of
from .reading import ScanService, TableScanner, TableSource, Ticket

_SPLIT_BYTES = 8 << 20
_DIRECTLY = (
    "only the own methods of the dataset of a table, such as scanner(), can read it: give scanner().to_reader() to "
    "functions that read files, such as Scanner.from_dataset"
)


class _NoFiles(fs.FileSystemHandler):
    """Refuses each access to files. Without it, what reads a dataset past its methods would see an empty table."""

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidArgumentError(_DIRECTLY)

    open_input_file = open_input_stream = open_output_stream = open_append_stream = _refused
    get_file_info = get_file_info_selector = create_dir = delete_dir = delete_dir_contents = _refused
    delete_root_dir_contents = delete_file = move = copy_file = normalize_path = _refused

    def get_type_name(self) -> str:
        """Return the name of the kind of file system."""
        return "nyala"


class NyalaDataset(ds.FileSystemDataset):
    """A table at one snapshot, as a ``pyarrow.dataset.Dataset``; it is one only for the SQL engines that ask. Thread
    safe.

    Filters have SQL's logic, unlike pyarrow's own: NaN equals itself and is greater than all numbers, and neither IN
    nor NOT IN selects NULL. Every NaN is read as the same. Rows come in no particular order. What
    ``pyarrow.dataset`` has besides is refused.

    Reading raises ``InvalidArgumentError`` if columns or filters do not fit the table, and ``SnapshotTooOldError`` if
    the history of the snapshot is no longer kept.
    """

    def __new__(cls, *_: Any, **__: Any) -> NyalaDataset:
        return super().__new__(cls)

    def __init__(
        self,
        store: ScanService,
        table: TableDescription,
        snapshot: int,
        *,
        views: bool = False,
        split_bytes: int = _SPLIT_BYTES,
        fragments_max: int | None = None,
        conditions: Sequence[PushedPart] = (),
        begun: BegunRead | None = None,
    ) -> None:
        """Make the dataset of a table at the timestamp ``snapshot``.

        With ``views``, text and bytes are ``string_view`` and ``binary_view``, which DataFusion groups by faster.
        ``get_fragments`` returns parts of about ``split_bytes``, and not more than ``fragments_max`` (None: the number
        of processors), since engines read all at once. ``conditions`` restrict the rows. ``begun`` has the rows of the
        first plan that asks for parts with its filter, once.
        """
        columns = pa.schema([column.field for column in table.columns])
        nowhere = ds.IpcFileFormat()
        super().__init__([nowhere.make_fragment("table", fs.PyFileSystem(_NoFiles()))], columns, nowhere)
        self.store = store
        """The store that is read."""
        self.table = table
        """The description of the table."""
        self.snapshot = snapshot
        """The timestamp whose rows are read."""
        self._source = TableSource(store, table.name, columns, snapshot, views)
        self._options = {"views": views, "split_bytes": split_bytes, "fragments_max": fragments_max}
        self._split_bytes = split_bytes
        self._fragments_max = fragments_max or len(os.sched_getaffinity(0))
        self._conditions = list(conditions)
        self._begun = begun
        self._latest: tuple[Any, PushedFilter] = (None, PushedFilter())  # engines send each filter once a part

    @property
    def schema(self) -> pa.Schema:
        """The columns, as the batches have them."""
        return self._source.shown(self._source.schema.names)

    def __repr__(self) -> str:
        return f"NyalaDataset({self.table.name!r}, snapshot={self.snapshot})"

    def pushed(self, filter: Any = None) -> PushedFilter:
        """Return how the rows are found that a filter selects: what of it the store evaluates, and what is left."""
        before, latest = self._latest
        if isinstance(filter, ds.Expression) and isinstance(before, ds.Expression) and filter.equals(before):
            return latest
        more = [] if filter is None else conjuncts(part_of(filter))
        pushed = pushed_of([*self._conditions, *more], self._source.schema)
        self._latest = (filter, pushed)
        return pushed

    def batches(
        self, columns: Sequence[str], pushed: PushedFilter, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the columns of the rows that a filter, read before, selects; at most ``limit`` of them."""
        yield from self._source.batches(self._source.whole(), columns, pushed, limit)

    # What engines call

    def scanner(self, columns: Any = None, filter: Any = None, **_: Any) -> Any:
        """Return what reads some columns of the rows that a filter selects.

        ``columns`` is a list of names, or as in pyarrow a dict of names and expressions. Sizes of batches and the like,
        which ``pyarrow.dataset`` has as further arguments, are ignored: the store knows them.
        """
        return self._scanner([self._source.whole()], columns, filter)

    def _scanner(self, tickets: Sequence[Ticket], columns: Any, filter: Any) -> Any:
        pushed = self.pushed(filter)
        names = self._source.schema.names
        if isinstance(columns, dict):
            computed = TableScanner(self._source, tickets, names, pushed).to_reader()
            return ds.Scanner.from_batches(computed, columns=columns)
        if isinstance(columns, str):
            raise InvalidArgumentError(f"columns must be a list of names, as in [{columns!r}]")
        return TableScanner(self._source, tickets, names if columns is None else list(columns), pushed)

    def get_fragments(self, filter: Any = None) -> Iterator[Any]:
        """Yield the parts of the table that can be read at the same time, without those in which no row can match."""
        spec = ScanSpec(
            table=self.table.name,
            columns=[],
            where=self.pushed(filter).where,
            as_of=self.snapshot,
            split_bytes=self._split_bytes,
        )
        if self._begun is not None and spec.where == self._begun.where:
            plan_of_parts, whole = object(), self._source.whole()
            for number in range(self._fragments_max):
                yield TableFragment(self, [replace(whole, begun=BegunPart(self._begun, plan_of_parts, number))])
            return
        plan = self.store.plan(spec)
        tickets = [
            Ticket(split.ticket(spec).model_copy(update={"where": None}), split.server, split.rows)
            for split in plan.splits
        ]
        for group in _groups(plan.splits, self._fragments_max):
            yield TableFragment(self, [tickets[place] for place in group])
        if not tickets:  # engines take a source without parts for one that is broken
            yield TableFragment(self, [])

    # What users call

    def to_batches(self, columns: Any = None, filter: Any = None, **_: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, as they are read."""
        return self.scanner(columns, filter).to_batches()

    def to_table(self, columns: Any = None, filter: Any = None, **_: Any) -> pa.Table:
        """Return the rows, in memory."""
        return self.scanner(columns, filter).to_table()

    def count_rows(self, filter: Any = None, **_: Any) -> int:
        """Return the number of rows. The store counts them if it evaluates the whole filter."""
        return self.scanner([], filter).count_rows()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **_: Any) -> pa.Table:
        """Return some rows: as many, if there are so many. ``Table.head`` returns the first by key."""
        return self.scanner(columns, filter).head(num_rows)

    def filter(self, expression: Any) -> NyalaDataset:
        """Return the dataset of the rows that also satisfy an expression."""
        more = conjuncts(part_of(expression))
        return NyalaDataset(
            self.store, self.table, self.snapshot, conditions=[*self._conditions, *more], **self._options
        )

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows by the Arrow PyCapsule protocol."""
        return self.scanner().__arrow_c_stream__(requested_schema)

    # What cannot work

    def take(self, indices: object, *_: Any, **__: Any) -> NoReturn:
        """Refused: rows have keys and no places."""
        raise _refusal("take", "read rows by their keys with Table.get_many")

    def join(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: pyarrow would read the dataset past its methods."""
        raise _refusal("join", "join the result of to_table(), or use an engine such as DuckDB")

    def join_asof(self, *_: Any, **__: Any) -> NoReturn:
        """Refused, like ``join``."""
        raise _refusal("join_asof", "join the result of to_table(), or use an engine such as DuckDB")

    def sort_by(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: the store sorts for ``Table.scan``."""
        raise _refusal("sort_by", "sort with Table.scan(order_by=...)")

    def replace_schema(self, schema: object) -> NoReturn:
        """Refused: the columns are those of the table."""
        raise _refusal("replace_schema", "cast the rows that you read")

    @property
    def files(self) -> list[str]:
        """No files: the store has them."""
        return []

    def __reduce__(self) -> NoReturn:
        raise _refusal("pickled form", "open the store and make the dataset in the other process")


class TableFragment:
    """A part of the dataset that an SQL engine reads, as a ``pyarrow.dataset.Fragment``."""

    def __init__(self, dataset: NyalaDataset, tickets: Sequence[Ticket]) -> None:
        self._dataset = dataset
        self._tickets = tickets
        self.physical_schema = dataset.schema
        self.partition_expression = ds.scalar(True)

    def scanner(self, schema: Any = None, columns: Any = None, filter: Any = None, **_: Any) -> Any:
        """Return what reads some columns of the part's rows that a filter selects."""
        return self._dataset._scanner(self._tickets, columns, filter)

    def to_batches(self, schema: Any = None, columns: Any = None, filter: Any = None, **_: Any) -> Iterator[Any]:
        """Yield the rows in batches, as they are read."""
        return self.scanner(schema, columns, filter).to_batches()

    def to_table(self, schema: Any = None, columns: Any = None, filter: Any = None, **_: Any) -> pa.Table:
        """Return the rows, in memory."""
        return self.scanner(schema, columns, filter).to_table()

    def count_rows(self, filter: Any = None, **_: Any) -> int:
        """Return the number of rows."""
        return self.scanner(None, [], filter).count_rows()

    def head(self, num_rows: int, columns: Any = None, filter: Any = None, **_: Any) -> pa.Table:
        """Return some rows: as many, if there are so many."""
        return self.scanner(None, columns, filter).head(num_rows)


def _groups(splits: Sequence[ScanSplit], groups_max: int) -> Iterator[list[int]]:
    """Yield the places of neighbouring splits in groups of about the same bytes."""
    if len(splits) <= groups_max:
        yield from ([place] for place in range(len(splits)))
        return
    total = sum(split.bytes + 1 for split in splits)
    before = 0
    numbers: list[int] = []
    for split in splits:
        numbers.append((before + split.bytes // 2) * groups_max // total)
        before += split.bytes + 1
    for _, places in groupby(range(len(splits)), key=numbers.__getitem__):
        yield list(places)


def _refusal(call: str, instead: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the dataset of a table has no {call}: {instead}")
