"""Splitting: each tablet of a range becomes two, while the table is used.

All that is to be written is written before (`compaction.division`), with the maintenance locks of the tablets held and
their write locks free. Then, under the write locks of the table, the manifest is committed, which is the one commit
point, and the layout is replaced: as long as any alteration takes. Scans that run keep the tablets that they began
with; tickets for a tablet that was divided are answered by its heirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ..schemas.altered import TableState
from ..schemas.errors import UnavailableError
from ..schemas.partition_schema import RangeSplit
from ..schemas.table import TableSchema
from .compaction.division import Division
from .layout import Layout, write_locks
from .table import Table
from .tablet.environment import Environment
from .tablet.manifest import TableEntry
from .tablet.tablet import Tablet

_ROUNDS = 8
"""So often writers may bring new rowsets at the last moment."""


def split_in_place(table: Table, state: TableState, split: RangeSplit, environment: Environment) -> None:
    """Make ``table`` what ``state`` says, durably: ``split`` is all that is new in it. One caller at a time.

    Raises:
        StorageFullError: the disk is full; no tablet was divided.
        UnavailableError: the log or the manifest cannot be written, the table is being dropped, or rowsets are attached
            faster than they can be divided.
    """
    whole = (split.whole.lower, split.whole.upper)
    old = [tablet for tablet in table.tablets if (tablet.partition.lower, tablet.partition.upper) == whole]
    with ExitStack() as held:
        for tablet in old:
            held.enter_context(tablet.maintenance_lock)
            if tablet.retired:
                raise UnavailableError(tablet.retired)
        divisions = [Division(tablet, environment, state.partitions, split) for tablet in old]
        for _ in range(_ROUNDS):
            environment.halt.check()
            for division in divisions:
                division.prepare()
            with write_locks(table.tablets):
                if all(division.is_ready for division in divisions):
                    _put_in_place(table, state, divisions, environment)
                    break
        else:
            raise UnavailableError("the tablet is loaded faster than it can be divided; try again later")
        for tablet in old:
            tablet.retired = "the tablet was divided"
            tablet.key_lookup.release()


def _put_in_place(table: Table, state: TableState, divisions: Sequence[Division], environment: Environment) -> None:
    """Commit the heirs and put them into the layout, under the write locks of all tablets."""
    heirs = {division.tablet.tablet_id: _heirs(division, state.schema, environment) for division in divisions}
    for division in divisions:
        division.take_over(heirs[division.tablet.tablet_id])
    by_id = {division.tablet.tablet_id: division for division in divisions}

    def edited(entry: TableEntry) -> TableEntry:
        kept = [tablet for tablet in entry.tablets if tablet.id not in by_id]
        divided = [tablet for tablet in entry.tablets if tablet.id in by_id]
        new = [heir for tablet in divided for heir in by_id[tablet.id].entries(tablet, heirs[tablet.id])]
        update = {"schema_": state.schema, "partitions": state.partitions, "tablets": (*kept, *new)}
        return entry.model_copy(update=update)

    environment.manifest.commit(lambda manifest: manifest.with_altered(table.table_id, edited))
    with environment.halt.on_failure("a divided tablet could not be put in place"):
        kept = [tablet for tablet in table.tablets if tablet.tablet_id not in by_id]
        for tablet in kept:
            tablet.schema = state.schema
        new = [heir for pair in heirs.values() for heir in pair]
        table.layout = Layout(state.schema, state.options, (*kept, *new), state.partitions)


def _heirs(division: Division, schema: TableSchema, environment: Environment) -> list[Tablet]:
    old, budget = division.tablet, environment.key_index
    ancestors = (*old.ancestors, old.tablet_id)
    return [
        Tablet(environment.manifest.new_id(), schema, budget, partition, old.directory_id, ancestors, old.elsewhere)
        for partition in division.partitions
    ]
