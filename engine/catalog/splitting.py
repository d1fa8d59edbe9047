"""Splitting: each tablet of a range becomes two, while the table is in use.

Everything that must be written or indexed is prepared (`tablet_split`) under the tablets' maintenance locks, with their
write locks free. Then, under the write locks of the table, the last few rows are copied, the manifest is committed,
which is the only commit point, and the version is replaced, as in any alteration. Running scans keep their tablets; the
halves answer tickets for a tablet that was split.

A split may take long. Other tables can be created, altered and dropped meanwhile. Dropping this one ends the split.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from ...schemas.errors import UnavailableError
from ...schemas.table.altered import TableState
from ...schemas.table.partition_schema import RangeSplit
from ..manifest.environment import Environment
from ..manifest.interrupts import interrupts_later
from ..manifest.manifest import TableEntry
from ..table.table import Table
from ..table.table_version import TableVersion, write_locks
from ..tablet.tablet import Tablet
from .tablet_split import LITTLE, TabletSplit, index_keys

_ROUNDS = 8
"""How often writers may bring new rowsets, or too many rows, at the last moment. The amount that may be copied while
they wait doubles each time, since a single batch may exceed the first."""


def split_in_place(table: Table, state: TableState, split: RangeSplit, environment: Environment) -> None:
    """Split tablets of ``table``: bring it durably to ``state``, which differs only by ``split``. Under its alteration
    lock.

    Raises:
        NotFoundError: the table was dropped meanwhile.
        CorruptionError: a tablet of the range is in quarantine.
        StorageFullError: the disk is full; no tablet was split.
        UnavailableError: the log or the manifest cannot be written, or rowsets are attached faster than they can be
            split.
    """
    whole = (split.whole.lower, split.whole.upper)
    old = [tablet for tablet in table.tablets if (tablet.partition.lower, tablet.partition.upper) == whole]
    with ExitStack() as held:
        for tablet in old:
            held.enter_context(tablet.maintenance_lock)
            table.check_in_use()
            if tablet.retired:
                raise UnavailableError(tablet.retired)
            _check_settled(tablet, environment)
        tablet_splits = [TabletSplit(tablet, environment, state, split) for tablet in old]
        try:
            _split(table, state, tablet_splits, environment, held)
        except BaseException:
            for tablet_split in tablet_splits:
                tablet_split.give_up()
            raise
        for tablet in old:
            tablet.retired = "the tablet was split"
            tablet.key_lookup.release()
    for half in [half for tablet_split in tablet_splits for half in tablet_split.halves]:
        with half.maintenance_lock:
            if not half.retired:  # the old index has released its memory
                index_keys(half)


def _check_settled(tablet: Tablet, environment: Environment) -> None:
    """Raise if a tablet is moving or in quarantine."""
    tablet.check_sound()
    entry = environment.manifest.current.tablet(tablet.tablet_id)
    if entry and entry.elsewhere and (entry.arriving or entry.moved):
        raise UnavailableError(
            f"a tablet of the range is moving between this server and {entry.elsewhere!r}: try again "
            "when the move has ended",
            1.0,
        )


def _split(
    table: Table, state: TableState, tablet_splits: Sequence[TabletSplit], environment: Environment, held: ExitStack
) -> None:
    """Prepare the splits until the halves can replace the tablets, and install the halves. From then on nothing
    interrupts the main thread until ``held`` is closed."""
    version = _split_version(table, state, tablet_splits)
    for attempt in range(_ROUNDS):
        little = LITTLE << attempt
        for tablet_split in tablet_splits:
            environment.latch.check()
            table.check_in_use()
            tablet_split.prepare(little)
        with write_locks(table.tablets):
            table.check_in_use()
            if all(tablet_split.is_ready(little) for tablet_split in tablet_splits):
                held.enter_context(interrupts_later())
                _put_in_place(table, version, tablet_splits, environment)
                return
    raise UnavailableError(
        f"table {table.name!r} is written to faster than its tablet can be split: try again when fewer rows come"
    )


def _split_version(table: Table, state: TableState, tablet_splits: Sequence[TabletSplit]) -> TableVersion:
    """Return the new version of the table, ready for the first batch."""
    kept = _kept(table, tablet_splits)
    new = [half for tablet_split in tablet_splits for half in tablet_split.halves]
    return TableVersion(state.schema, state.options, (*kept, *new), state.partitions).prepared()


def _put_in_place(
    table: Table, version: TableVersion, tablet_splits: Sequence[TabletSplit], environment: Environment
) -> None:
    """Commit the halves and install the table version with them, under the write locks of all tablets."""
    for tablet_split in tablet_splits:
        tablet_split.take_over()
    by_id = {tablet_split.tablet.tablet_id: tablet_split for tablet_split in tablet_splits}

    def edited(entry: TableEntry) -> TableEntry:
        kept = [tablet for tablet in entry.tablets if tablet.id not in by_id]
        new = [half for tablet in entry.tablets if tablet.id in by_id for half in by_id[tablet.id].entries(tablet)]
        update = {"schema_": version.schema, "partitions": version.partitions, "tablets": (*kept, *new)}
        return entry.model_copy(update=update)

    environment.manifest.commit(lambda manifest: manifest.with_altered(table.table_id, edited))
    with environment.latch.on_failure("a split tablet could not be installed"):
        for tablet in _kept(table, tablet_splits):
            tablet.schema = version.schema
        table.version = version
        table.redefined()


def _kept(table: Table, tablet_splits: Sequence[TabletSplit]) -> list[Tablet]:
    """Return the tablets that remain."""
    divided = {tablet_split.tablet.tablet_id for tablet_split in tablet_splits}
    return [tablet for tablet in table.tablets if tablet.tablet_id not in divided]
