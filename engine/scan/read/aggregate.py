"""Aggregates a tablet's chunks: from zone maps where they suffice, else from the rows, several chunks at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ...aggregate.partial import aggregate_rows, partial_of
from ...aggregate.plan import AggregatePlan
from ...aggregate.slot_pool import SlotPool
from ...aggregate.states import State, StateKind
from ...cfile.zone_map import ZoneMap
from ...codecs.codec import BLOCK_ROWS
from ...filter.bound import BoundFilter
from ...filter.steps import has_steps
from ...vectors.arrow import to_arrow
from ...vectors.physical import INT128_DTYPE, PhysicalType
from ...vectors.vector import BytesVector, FixedVector
from .chunk import Chunk, ScanRequest, pieces
from .selection import ChunkCells, Selection, select_rows, wanted_rows
from .zones import joined


@dataclass(slots=True)
class Tally:
    """How many rows a scan has looked at, and how many its filter left; about, if several threads count."""

    rows: int = 0
    left: int = 0

    def add(self, rows: int, left: int) -> None:
        self.rows += rows
        self.left += left

    @property
    def are_few(self) -> bool:
        """Whether most mini-blocks have no row that matches."""
        return self.left * BLOCK_ROWS < self.rows


def aggregate_chunk(chunk: Chunk, request: ScanRequest, pool: SlotPool, tally: Tally) -> pa.Table | None:
    """Aggregate a chunk of a scan: fold it into the pool, or else into the partial answer that is returned, with what
    the pool is done with; None if that is nothing."""
    partials = [*_of_chunk(chunk, request, pool, tally), *pool.done()]
    return pa.concat_tables(partials) if partials else None


def _of_chunk(chunk: Chunk, request: ScanRequest, pool: SlotPool, tally: Tally) -> list[pa.Table]:
    """Return partial answers of a chunk; none if no row is selected, or those are in the pool."""
    where = None if chunk.all_match else request.where
    at_once = chunk.rows is None and not chunk.touched_only
    if where:
        at_once = at_once and has_steps(where) and not tally.are_few
    folded = _folded_at_once(chunk, request, pool, where) if at_once else None
    if folded is not None:
        if where:
            tally.add(chunk.last - chunk.first, folded)
        return []
    found = [_of_piece(piece, request, pool, tally, may_fold=not at_once) for piece in pieces(chunk, request)]
    return [partial for partial in found if partial is not None]


def _folded_at_once(chunk: Chunk, request: ScanRequest, pool: SlotPool, where: BoundFilter | None) -> int | None:
    """Filter and fold a chunk in one pass, which reads all columns; return how many rows were left, None if that is not
    possible."""
    rows = chunk.first, chunk.last, request.snapshot
    alive = chunk.rowset.live_in(*rows)
    return chunk.rowset.fold(pool, where, request.filter_columns if where else (), *rows, alive)


def _of_piece(chunk: Chunk, request: ScanRequest, pool: SlotPool, tally: Tally, may_fold: bool) -> pa.Table | None:
    """Return the partial answer of a chunk that is no longer than vectors should be; None if no row is selected, or
    those are in the pool."""
    plan = pool.plan
    selection = select_rows(chunk, request)
    if selection and not selection.rest:
        tally.add(chunk.last - chunk.first, selection.count)
        if may_fold and not plan.columns:
            return partial_of(plan, {state: [_count(selection.count)] for state in plan.states})
        if may_fold and _folded(chunk, request, pool, selection):
            return None
    cells = ChunkCells(chunk, request)
    rows = wanted_rows(chunk, request, cells, selection)
    row_count = chunk.last - chunk.first if rows is None else len(rows)
    if not row_count:
        return None
    cells.read((column.id for column in plan.columns), rows)
    return aggregate_rows(plan, lambda column_id: cells.at(column_id, rows), row_count)


def _folded(chunk: Chunk, request: ScanRequest, pool: SlotPool, selection: Selection) -> bool:
    """Fold selected rows without decoding them into vectors; return False if that needs vectors."""
    if selection.count * BLOCK_ROWS < chunk.last - chunk.first:
        return False
    rows = chunk.first, chunk.last, request.snapshot
    return chunk.rowset.fold(pool, None, (), *rows, selection.mask) is not None


def known_partial(chunk: Chunk, request: ScanRequest, plan: AggregatePlan) -> pa.Table | None:
    """Return the partial answer of a chunk of a scan if counts and zone maps give it exactly; None if rows must be
    read.

    Only liveness is read. Zone maps are exact if the chunk is made of whole pages, and has no visible delta and no dead
    row.
    """
    is_all = chunk.rows is None and not chunk.touched_only and (request.where is None or chunk.all_match)
    if plan.group_by or not is_all or any(state.kind is StateKind.TOTAL for state in plan.states):
        return None
    row_count = chunk.last - chunk.first
    alive = chunk.rowset.live_in(chunk.first, chunk.last, request.snapshot)
    live_count = row_count if alive is None else int(alive.sum())
    parts: dict[State, list[pa.Array]] = {}
    for state in plan.states:
        known = [_count(live_count)] if state.kind is StateKind.ROWS else None
        if known is None and live_count == row_count:
            known = _from_zone_maps(chunk, request, state)
        if known is None:
            return None
        parts[state] = known
    return partial_of(plan, parts)


def _from_zone_maps(chunk: Chunk, request: ScanRequest, state: State) -> list[pa.Array] | None:
    assert state.column is not None
    zone = joined(chunk.rowset.zone_maps_at(state.column.id, chunk.first, chunk.last, request.snapshot))
    if zone is None or zone.row_count != chunk.last - chunk.first:
        return None
    if state.kind is StateKind.VALID:
        return [_count(zone.row_count - zone.null_count)]
    if not zone.exact or (zone.min is None and not zone.has_nan and zone.null_count < zone.row_count):
        return None
    bounds = [_cell(zone.min, state), _cell(zone.max, state)]
    return bounds if len(state.parts) == 2 else [*bounds, _count(_numbers(zone))]


def _numbers(zone: ZoneMap) -> int:
    """Return the count of numbers in a page as far as it matters: whether there are any."""
    return 0 if zone.min is None else zone.row_count - zone.null_count


def _count(number: int) -> pa.Array:
    return pa.array([number], pa.int64())


def _cell(value: int | float | bytes | None, state: State) -> pa.Array:
    """Return a bound as the one cell of an array of the column's type."""
    kind = state.bound_type
    if value is None:
        return pa.nulls(1, kind)
    if isinstance(value, bytes):
        offsets = np.array([0, len(value)], np.int32)
        return to_arrow(BytesVector(offsets, np.frombuffer(value, np.uint8)), kind)
    if state.physical is PhysicalType.INT128:
        wide = np.array([(int(value) & ((1 << 64) - 1), int(value) >> 64)], INT128_DTYPE)
        return to_arrow(FixedVector(wide), kind)
    return to_arrow(FixedVector(np.array([value], state.physical.dtype)), kind)
