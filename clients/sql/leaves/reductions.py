"""What tables in memory leave of each other, and of larger ones: semi-joins over their keys (see `restrictions`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.types as types

from ....schemas import compute as pc
from ..source.bounds import Tree, joined
from .restrictions import Edge
from .table_read import RowsInMemory, TableRead

_KEYS_MAX = 100_000
"""More keys than this are no filter."""
_ROWS_MAX = 5_000_000
"""More rows than this are not reduced in memory."""
_AT_ONCE, _IN_THE_END = (_KEYS_MAX, 0.05), (10 * _KEYS_MAX, 0.5)
"""Before tables in memory are reduced, and after: how many rows may be searched for keys, and which share of a table's
first rows may have such keys, so that it begins again."""
_SAMPLE_ROWS = 100_000


_Source = TableRead | RowsInMemory


class Reductions:
    """The reductions of the leaves of a query, each of which is made once."""

    def __init__(
        self, reads: Sequence[TableRead], rows: Sequence[RowsInMemory], is_large: Callable[[TableRead], bool]
    ) -> None:
        """``rows`` restrict, too; ``is_large`` tells of a table that waits whether it takes much memory."""
        self._reads = reads
        self._is_large = is_large
        self._by_name: dict[str, _Source] = {name: source for source in (*reads, *rows) for name in source.names}
        self._left: dict[_Source, pa.ChunkedArray] = {}
        """For tables that were reduced: which of their rows are left."""
        self._made: set[tuple[TableRead, int, Edge]] = set()
        self._kept: dict[tuple[_Source, str], pa.Array] = {}

    def restrict(self, waiting: Sequence[TableRead]) -> list[TableRead]:
        """Let large tables that wait begin again where others leave few keys of them; return these."""
        waiting = [
            read for read in waiting if read.rows and any(place.edges for place in read.places) and self._is_large(read)
        ]
        restricted = [read for read in waiting if self._begins_again(read, *_AT_ONCE)]
        if restricted or not waiting:
            return restricted
        self._reduce_all(self._leading_to(waiting))
        return [read for read in waiting if self._begins_again(read, *_IN_THE_END)]

    def _reduce_all(self, reads: set[_Source]) -> None:
        """Reduce tables in memory by each other, the smallest first."""
        while True:
            ready = [
                (max(self._rows_left(self._source(edge)) for edges in places for edge in edges), number)
                for number, read in enumerate(self._reads)
                if read in reads and read.is_whole and read.rows <= _ROWS_MAX and (places := self._ready(read))
            ]
            if not ready:
                return
            self._reduce(self._reads[min(ready)[1]])

    def _leading_to(self, waiting: Sequence[TableRead]) -> set[_Source]:
        """Return the tables whose keys may restrict one that waits, or a table of these."""
        goals: set[_Source] = set(waiting)
        count = 0
        while len(goals) > count:
            count = len(goals)
            edges = [edge for read in goals for place in read.places for edge in place.edges]
            goals |= {self._source(edge) for edge in edges if edge.source in self._by_name}
        return goals

    def _source(self, edge: Edge) -> _Source:
        return self._by_name[edge.source]

    def _rows_left(self, read: _Source) -> int:
        left = self._left.get(read)
        return read.rows if left is None else pc.sum(left).as_py() or 0

    def _ready(self, read: TableRead) -> list[list[Edge]]:
        """Return the restrictions of a table for each of its places; nothing if one has none, or all were made."""
        places = [
            [edge for edge in place.edges if self._is_ready(read, edge) and (read, number, edge) not in self._made]
            for number, place in enumerate(read.places)
        ]
        return places if all(places) else []

    def _is_ready(self, read: TableRead, edge: Edge) -> bool:
        source = self._by_name.get(edge.source)  # none: a table of information_schema
        if source is None or source is read or not source.is_whole or read.table.since is not None:
            return False
        return source.has_shrunk or source in self._left

    def _note(self, read: TableRead, places: Sequence[Sequence[Edge]]) -> None:
        self._made |= {(read, place, edge) for place, edges in enumerate(places) for edge in edges}

    def _reduce(self, read: TableRead) -> None:
        """Find out which rows of a table in memory are left."""
        places = self._ready(read)
        self._note(read, places)
        if not read.batches:
            return
        left = self._matching(read, places)
        if read in self._left:
            left = pc.and_(left, self._left[read])
        if not pc.all(left).as_py():
            self._left[read] = left
            self._kept = {place: keys for place, keys in self._kept.items() if place[0] is not read}

    def _begins_again(self, read: TableRead, rows_max: int, share_max: float) -> bool:
        """Let a table begin again, if at most this share of its first rows have keys of tables with at most
        ``rows_max`` rows."""
        places = [[edge for edge in edges if self._is_filter(edge, rows_max)] for edges in self._ready(read)]
        count = sum(len(self._keys(edge)) for edges in places for edge in edges)
        if not places or not all(places) or count > _KEYS_MAX:
            return False
        if pc.mean(pc.cast(self._matching(read, places, _SAMPLE_ROWS), pa.int8())).as_py() > share_max:
            return False
        self._note(read, places)
        each = [joined("and", [self._tree(edge) for edge in edges]) for edges in places]
        trees = [tree for number, tree in enumerate(each) if tree not in each[:number]]
        tables = [self._source(edge).name for edges in places for edge in edges]
        read.begin_again(joined("or", trees), tables)
        return True

    def _is_filter(self, edge: Edge, rows_max: int) -> bool:
        if self._rows_left(self._source(edge)) > rows_max:
            return False
        keys = self._keys(edge)
        return len(keys) <= _KEYS_MAX and (types.is_integer(keys.type) or types.is_string(keys.type))

    def _tree(self, edge: Edge) -> Tree:
        return {"op": "in", "column": edge.column, "values": self._keys(edge).to_pylist()}

    def _matching(
        self, read: TableRead, places: Sequence[Sequence[Edge]], rows_max: int | None = None
    ) -> pa.ChunkedArray:
        """Return which rows of a table, or of its first ones, have the keys of one of its places."""
        masks = [list(self._masks(read, edges, rows_max)) for edges in places]
        either = [_folded(each, pc.and_) for each in masks]
        return _folded(either, pc.or_)

    def _masks(self, read: TableRead, edges: Sequence[Edge], rows_max: int | None) -> Iterator[pa.ChunkedArray]:
        for edge in edges:
            yield pc.is_in(_cells(read, edge.column).slice(0, rows_max), value_set=self._keys(edge))

    def _keys(self, edge: Edge) -> pa.Array:
        """Return the distinct keys that a table in memory has left, without NULL."""
        source = self._source(edge)
        place = source, edge.source_column
        keys = self._kept.get(place)
        if keys is None:
            keys = self._kept[place] = self._keys_of(*place)
        return keys

    def _keys_of(self, source: _Source, column: str) -> pa.Array:
        if not source.batches:
            kind = source.schema.field(column).type
            return pa.array([], pa.float32() if types.is_float16(kind) else kind)
        cells, left = _cells(source, column), self._left.get(source)
        return pc.drop_null(pc.unique(cells if left is None else cells.filter(left)))


def _folded(masks: Sequence[pa.ChunkedArray], both: object) -> pa.ChunkedArray:
    mask = masks[0]
    for other in masks[1:]:
        mask = both(mask, other)  # pyright: ignore[reportCallIssue]
    return mask


def _cells(read: _Source, column: str) -> pa.ChunkedArray:
    """Return the cells of a column, equal where a join takes them for equal: of floats both zeros are one."""
    cells = pa.chunked_array([batch.column(column) for batch in read.batches])
    if not types.is_floating(cells.type):
        return cells
    if types.is_float16(cells.type):  # Arrow does not compare these
        cells = cells.cast(pa.float32())
    return pc.add(cells, pa.scalar(0.0, cells.type))
