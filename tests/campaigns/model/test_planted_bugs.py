"""The model is worth what it catches: bugs are planted in the engine, and the machine must find each."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from nyala.engine.compaction import flush, flush_deltas, history_gc, merge_rows
from nyala.engine.compaction.key_merge import MergedRows
from nyala.engine.delta import tracker
from nyala.engine.delta.history import Moments
from nyala.engine.kernels.reads.morsel import AS_STRINGS
from nyala.engine.kernels.reads.point_read import NULLS
from nyala.engine.manifest.manifest import Manifest
from nyala.engine.partition import prune
from nyala.engine.rowset import diskrowset, memrowset
from nyala.engine.rowset.diskrowset import DiskRowSet
from nyala.engine.rowset.key_filter import KeyFilter
from nyala.engine.rowset.liveness import LiveRows
from nyala.engine.rowset.native.absent import absent_cells
from nyala.engine.rowset.native.morsel_column import MorselColumn
from nyala.engine.scan.read import aggregate, selection
from nyala.engine.scan.read import over_tablets as scan
from nyala.engine.table import formulas
from nyala.engine.table.small import row_commit
from nyala.engine.tablet import outcome, tablet
from nyala.engine.tablet.key_lookup import KeyLookup
from nyala.engine.transaction.collapse import Collapse
from nyala.engine.vectors.vector import BytesVector, FixedVector
from nyala.schemas.errors import StoreError
from nyala.schemas.table import altered
from tests.campaigns.model.altering import Altering
from tests.campaigns.model.machine import machine_of
from tests.campaigns.model.session import Session
from tests.campaigns.model.shapes import COUNTED, IMMUTABLE, MERGED, NO_INDEX, PARTITIONED, U64, Shape
from tests.campaigns.model.stretches import Stretches
from tests.campaigns.model.subjects import DirectSubject, EmbeddedSubject

QUICK = settings(max_examples=400, stateful_step_count=60, deadline=None, database=None, phases=[Phase.generate])


def find(
    plant: Callable[[pytest.MonkeyPatch], None], shape: Shape, subject: type[EmbeddedSubject] = EmbeddedSubject
) -> None:
    """Run the machine until it fails. Any seed does in the end; some of the rarer bugs have one that does so soon."""
    machine = seed(SEEDS.get(plant, 1))(machine_of(shape, subject))
    with pytest.raises((AssertionError, IndexError, ExceptionGroup)):
        run_state_machine_as_test(machine, settings=QUICK)


def history_forgotten_by_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    births: Callable[..., Any] = flush._births
    monkeypatch.setattr(flush, "_births", lambda inserted, changes: births(np.zeros_like(inserted), changes))


def undo_files_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker, "_undo_patches", lambda *_: [])


def deletes_forgotten_by_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LiveRows, "load", lambda self, alive: None)


def first_update_of_a_key_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "_actors", lambda operation, first, leaders, shape: leaders)


def filter_that_lets_all_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "select", lambda where, vectors, count: np.ones(count, np.bool_))


def history_forgotten_by_a_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    invert = merge_rows.invert

    def forward_only(base: Any, redo: Any) -> Any:
        cells, undo = invert(base, redo)
        return cells, undo.slice(0, 0)

    monkeypatch.setattr(merge_rows, "invert", forward_only)


def deltas_of_a_merge_left_with_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MergedRows, "arranged_run", lambda self, run: run)


def keys_not_relocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyLookup, "relocate", lambda self, *_: None)


def dead_rows_alive_after_a_merge(monkeypatch: pytest.MonkeyPatch) -> None:
    column: Callable[..., Any] = merge_rows.Merge._column

    def all_alive(self: Any, which: Any, rows: Any) -> Any:
        cells, undo = column(self, which, rows)
        return (FixedVector(np.ones_like(cells.values)), undo) if which is None else (cells, undo)

    monkeypatch.setattr(merge_rows.Merge, "_column", all_alive)


def undo_dropped_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_gc, "_ancient", lambda rowset, mark: list(rowset.deltas.stores.undo))


def feed_that_shows_the_first_change(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_of_rows(self: Moments) -> Moments:
        return self.take(np.flatnonzero(np.append(True, self.rowids[1:] != self.rowids[:-1])[: len(self)]))

    monkeypatch.setattr(Moments, "last_of_rows", first_of_rows)


def redo_collapsed_whatever_history_says(monkeypatch: pytest.MonkeyPatch) -> None:
    collapse = flush_deltas.collapsed
    monkeypatch.setattr(flush_deltas, "collapsed", lambda redo, mark: collapse(redo, (1 << 63) - 1))


PLANTED = [
    history_forgotten_by_a_flush,
    undo_files_not_read,
    deletes_forgotten_by_a_restart,
    first_update_of_a_key_wins,
    filter_that_lets_all_through,
    history_forgotten_by_a_merge,
    deltas_of_a_merge_left_with_other_rows,
    keys_not_relocated,
    dead_rows_alive_after_a_merge,
    undo_dropped_too_early,
    feed_that_shows_the_first_change,
    redo_collapsed_whatever_history_says,
]


def conditions_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablet.Tablet, "changed_after", lambda self, locations, moment: np.zeros(len(locations), bool))


def conditions_not_looked_at_in_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    def born_after(rowset: Any, rowids: np.ndarray, moment: int, columns: Any) -> np.ndarray:
        return changed_after(rowset, rowids, moment, {})

    changed_after = tablet.changed_after
    monkeypatch.setattr(tablet, "changed_after", born_after)


def immutable_cells_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = outcome._rules
    monkeypatch.setattr(
        outcome, "_rules", lambda op, alive, shape: rules(op, alive, replace(shape, has_immutable=False))
    )


def zone_maps_believed_under_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds and counts of a page with dead rows are taken from its zone map."""

    def all_alive(chunk: Any, request: Any, plan: Any) -> Any:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(type(chunk.rowset), "live_in", lambda *_: None)
            return known_partial(chunk, request, plan)

    known_partial = aggregate.known_partial
    monkeypatch.setattr(scan, "known_partial", all_alive)


def keys_that_the_filter_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    may_hold = KeyFilter.may_hold
    monkeypatch.setattr(KeyFilter, "may_hold", lambda self, hashes: may_hold(self, hashes) & (hashes % 5 != 0))


def attached_rows_that_were_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DiskRowSet, "row_count", lambda self, snapshot: self.metadata.row_count)
    monkeypatch.setattr(DiskRowSet, "births", lambda *_: None)


def tablet_left_out_in_which_a_range_of_keys_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    is_apart = prune._is_apart

    def lies_before(keys: Any, lower: bytes, upper: bytes | None) -> bool:
        return is_apart(keys, lower, upper) or (keys.lower is not None and keys.lower > lower)

    monkeypatch.setattr(prune, "_is_apart", lies_before)


def nulls_of_a_sum_taken_for_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulas, "_have_null", lambda rows, name: False)


def single_rows_replace_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_commit, "merged", lambda before, cell, combine: cell)


ELSEWHERE = [
    (conditions_not_looked_at, U64, EmbeddedSubject),
    (conditions_not_looked_at_in_deltas, U64, EmbeddedSubject),
    (immutable_cells_changed, IMMUTABLE, EmbeddedSubject),
    (zone_maps_believed_under_deletes, U64, EmbeddedSubject),
    (keys_that_the_filter_does_not_know, NO_INDEX, EmbeddedSubject),
    (attached_rows_that_were_always_there, U64, DirectSubject),
    (tablet_left_out_in_which_a_range_of_keys_begins, PARTITIONED, EmbeddedSubject),
    (nulls_of_a_sum_taken_for_values, MERGED, EmbeddedSubject),
    (single_rows_replace_values, COUNTED, EmbeddedSubject),
]

SEEDS: dict[Callable[..., None], int] = {
    conditions_not_looked_at_in_deltas: 4,
    dead_rows_alive_after_a_merge: 3,
    deletes_forgotten_by_a_restart: 7,
    deltas_of_a_merge_left_with_other_rows: 3,
    history_forgotten_by_a_merge: 7,
    redo_collapsed_whatever_history_says: 6,
    single_rows_replace_values: 4,
    tablet_left_out_in_which_a_range_of_keys_begins: 4,
    undo_dropped_too_early: 2,
    zone_maps_believed_under_deletes: 15,
}
"""By these a failure comes soon, within the first sequences."""


@pytest.mark.parametrize(("plant", "shape", "subject"), ELSEWHERE, ids=[plant.__name__ for plant, *_ in ELSEWHERE])
def test_the_machine_finds_with_other_tables(
    plant: Callable[[pytest.MonkeyPatch], None],
    shape: Shape,
    subject: type[EmbeddedSubject],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)
    find(plant, shape, subject)


def test_merges_blind_to_their_own_transaction_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine seldom has two writes of one key in a transaction, the second of which merges; its checks see it."""

    def stored(self: Collapse, column: Any, keys: np.ndarray) -> Any:
        return self._tablet.newest_of(column, keys, self._locations[keys])

    def transact() -> None:
        session = Session(MERGED, EmbeddedSubject(MERGED))
        session.write("insert", ("k", "v", "must"), [(1, 1, 0)])
        session.transact([("update", ("k", "v"), [(1, 5)]), ("merge", ("k", "v", "must"), [(1, 3, 0)])], False)
        session.check()

    transact()
    monkeypatch.setattr(Collapse, "_newest", stored)
    with pytest.raises(AssertionError):
        transact()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_the_machine_finds(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    find(plant, U64)


def new_columns_null_in_old_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(column: Any, row_count: int) -> Any:
        return absent_cells(column.model_copy(update={"read_default": None}), row_count)

    monkeypatch.setattr(diskrowset, "absent_cells", nothing)


def narrow_cells_of_the_log_not_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablet, "conformed", lambda vector, physical: vector)
    monkeypatch.setattr(memrowset, "conformed", lambda vector, physical: vector)
    monkeypatch.setattr(diskrowset, "conformed", lambda vector, physical: vector)


def column_ids_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    make = altered._with

    def without_memory(schema: Any, **update: Any) -> Any:
        columns = update.get("columns", schema.columns)
        return make(schema, **{**update, "next_column_id": max(column.id for column in columns) + 1})

    monkeypatch.setattr(altered, "_with", without_memory)


def alteration_forgotten_by_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Manifest, "with_altered", lambda self, *_: self)


ALTERATIONS = [
    new_columns_null_in_old_rows,
    narrow_cells_of_the_log_not_widened,
    column_ids_given_twice,
    alteration_forgotten_by_a_restart,
]


@pytest.mark.parametrize("plant", ALTERATIONS, ids=lambda plant: plant.__name__)
def test_the_mirror_finds(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, StoreError, KeyError)):
        for seed in range(8):
            Altering(seed).run(60)


def updates_of_pages_of_nulls_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that does not look at patches where all of a page is NULL, if they come as codes."""

    def without(self: MorselColumn, size: int) -> Any:
        cells = result(self, size)
        is_lost = [np.full(stop - start, kind == NULLS) for kind, _, _, start, stop, _ in self.parts]
        if self.form != AS_STRINGS or not self.patches or not np.concatenate(is_lost).any():
            return cells
        assert isinstance(cells, BytesVector)
        lost, lengths = np.concatenate(is_lost), cells.lengths.copy()
        data = cells.data[: cells.data_bytes][np.repeat(~lost, lengths)]
        lengths[lost] = 0
        return BytesVector(np.append(0, np.cumsum(lengths)).astype(np.int32), data, cells.valid)

    result = MorselColumn.result
    monkeypatch.setattr(MorselColumn, "result", without)


def test_stretches_find_what_tables_of_a_few_rows_never_have(monkeypatch: pytest.MonkeyPatch) -> None:
    updates_of_pages_of_nulls_lost(monkeypatch)
    with pytest.raises(AssertionError, match=r"row .* has '', expected is"):
        for seed in range(12):
            Stretches(seed).run(25)
