"""Makes a table for data that is to be loaded into it at once, and takes it back if that fails.

A process that has the store may end before it has answered. A table that was made nevertheless would stay, empty, and
another call of the same name would meet it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ...schemas.errors import NotFoundError, StoreError, UnavailableError
from ...schemas.protocol.service import StoreService
from ...schemas.store.description import TableDescription
from ...schemas.table.table import TableDefinition

_ATTEMPTS = 3
"""How often to drop a table if the answer gets lost."""


def made_to_load(store: StoreService, definition: TableDefinition) -> TableDescription:
    """Create a table for data that a user gives at once, and loads. If the answer got lost, but the table is there, as
    new as it would be, it is taken for this one. Raises what creating it raises."""
    try:
        return store.create_table(definition)
    except UnavailableError as error:
        if not error.answer_is_lost:
            raise
        try:
            found = store.describe_table(definition.name)
            is_new = _is_as(found, definition) and store.last_change(definition.name) == 0
        except StoreError:
            is_new = False
        if not is_new:
            raise
        return found


@contextmanager
def dropped_unless_loaded(store: StoreService, table: TableDescription) -> Iterator[None]:
    """Drop a user's new table if the body fails, which loads it. If that fails, too, the error of the body has a
    note."""
    try:
        yield
    except BaseException as error:
        if not _is_dropped(store, table):
            error.add_note(f"the table {table.name!r} may still exist without rows: drop the table")
        raise


def _is_dropped(store: StoreService, table: TableDescription) -> bool:
    for _ in range(_ATTEMPTS):
        try:
            if store.describe_table(table.name).table_id == table.table_id:
                store.drop_table(table.name)
            return True
        except NotFoundError:
            return True
        except UnavailableError as error:
            if not error.answer_is_lost:
                return False
        except StoreError:
            return False
    return False


def _is_as(found: TableDescription, definition: TableDefinition) -> bool:
    """Whether a table is as it was defined, and was not altered since."""
    named = {column.name: column.type for column in found.columns}
    return (
        found.schema_version == 1
        and found.unique_key == definition.unique_key
        and found.primary_key[: len(definition.primary_key)] == definition.primary_key
        and all(named.get(column.name) == column.type for column in definition.columns)
        and len(named) == len(definition.columns) + (not definition.unique_key)
    )
