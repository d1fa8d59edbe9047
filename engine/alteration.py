"""Alteration: a table gets another schema, other options or another name, as one change that no batch falls into.

 1. The steps are checked against the table as it is; nothing has happened if one is wrong.
 2. Under the write locks of all tablets, so that every batch is wholly before or wholly after: the manifest is
    committed, which is the one commit point, and then the layout of the table is replaced.

Where columns come, go or are widened, the rows in memory are set aside, to be flushed, and new rows go to a MemRowSet
that has the new columns: so a MemRowSet, like a file, has one set of columns for good. Readers adapt what they find:
a column that a rowset lacks shows its read default, narrower cells are widened, dropped columns are not looked at.
Nothing is rewritten, hence the locks are held for as long as it takes to write the manifest. Scans that run keep the
layout and the rowsets that they began with.

What the log holds was logged under some earlier schema, and is read in the same way: it names columns by id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from ..schemas.altered import TableState
from ..schemas.table import TableSchema
from .layout import write_locks
from .rowset.memrowset import MemRowSet
from .table import Table
from .tablet.environment import Environment
from .tablet.tablet import Tablet


def put_in_place(table: Table, state: TableState, environment: Environment) -> None:
    """Make ``table`` what ``state`` says, durably. One caller at a time.

    Raises:
        StorageFullError: the disk is full; nothing changed.
        UnavailableError: the manifest cannot be written, or a tablet has no room for a rowset; nothing changed here.
    """
    layout = table.layout
    environment.halt.check()
    with write_locks(layout.tablets), _new_memrowsets(layout.tablets, state.schema) as successors:
        environment.manifest.commit(
            lambda manifest: manifest.with_altered(table.table_id, state.name, state.schema, state.options)
        )
        with environment.halt.on_failure("an altered table could not be put in place"):
            for tablet, successor in zip(layout.tablets, successors, strict=True):
                tablet.schema = state.schema
                if successor is not None:
                    tablet.set_aside(successor)
            table.name = state.name
            table.layout = replace(layout, schema=state.schema, options=state.options)


@contextmanager
def _new_memrowsets(tablets: Sequence[Tablet], schema: TableSchema) -> Iterator[list[MemRowSet | None]]:
    """Make a MemRowSet for each tablet whose active one does not fit ``schema``; take them back when the body fails."""
    with ExitStack() as undo:
        made: list[MemRowSet | None] = []
        for tablet in tablets:
            if tablet.version.active.fits(schema.columns):
                made.append(None)
                continue
            successor = tablet.new_memrowset(schema)
            undo.callback(tablet.drop_slot, successor.slot)
            made.append(successor)
        yield made
        undo.pop_all()
