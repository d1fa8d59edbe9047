"""Point reads over several servers: each key goes to its tablet's server; rows come back in the order of the keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from ...schemas.errors import ConflictError, UnavailableError, WrongServerError
from ...schemas.rows.batches import in_one, no_rows
from ...schemas.store.description import TableDescription
from .key_cells import stored_cells
from .servers import Servers
from .tablet_locations import TabletLocationsCache

_TURNS_MAX = 20
_POSITION = " position"
"""No column of a table begins with a space."""
_KEYS_MAX, _BYTES_MAX = 16_384, 8 << 20
"""The most keys that are looked up at once, and the most bytes of the rows of several from one server."""


def get(servers: Servers, cache: TabletLocationsCache, table: str, keys: pa.RecordBatch) -> pa.Table:
    """Return the live rows of the keys from the servers that have them, in the order asked.

    Raises:
        ConflictError: the columns differ between servers.
        UnavailableError: tablets move faster than the reads can follow.
    """
    return _rows(cache, table, keys, lambda name, part: servers.store(name).get(table, part))


def look_up(
    servers: Servers, cache: TabletLocationsCache, table: str, keys: pa.RecordBatch
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of the keys from the servers that have them, in batches of some MB, at least one, each as of
    its own "now". Raises as ``get``."""
    first, count, is_first = 0, _KEYS_MAX, True
    while is_first or first < keys.num_rows:
        part = keys.slice(first, count)
        bytes_max = _BYTES_MAX if part.num_rows > 1 else None
        try:
            rows = _rows(cache, table, part, partial(_few, servers, table, bytes_max))
        except _TooManyBytesError:
            count = max(part.num_rows // 2, 1)
            continue
        yield in_one(rows.to_batches() or [no_rows(rows.schema)])
        first, is_first = first + part.num_rows, False
        if rows.nbytes < _BYTES_MAX // 4:
            count = min(2 * count, _KEYS_MAX)


class _TooManyBytesError(Exception):
    """The rows of several keys have too many bytes to be put in order at once."""


def _few(servers: Servers, table: str, bytes_max: int | None, name: str, keys: pa.RecordBatch) -> pa.Table:
    found = servers.store(name).look_up(table, keys)
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in found.batches:
        size += batch.nbytes
        if bytes_max is not None and size > bytes_max:
            found.close()
            raise _TooManyBytesError
        batches.append(batch)
    return pa.Table.from_batches(batches, found.schema)


def _rows(
    cache: TabletLocationsCache, table: str, keys: pa.RecordBatch, read: Callable[[str, pa.RecordBatch], pa.Table]
) -> pa.Table:
    for _ in range(_TURNS_MAX):
        parts = cache.of(table).by_server(keys)
        try:
            if len(parts) == 1:
                return read(next(iter(parts)), keys)
            return _gathered(cache.of(table).description, keys, parts, read)
        except WrongServerError:
            cache.forget(table)
    raise UnavailableError("the tablets of the keys keep moving between servers; try again", 1.0)


def _gathered(
    table: TableDescription,
    keys: pa.RecordBatch,
    parts: dict[str, np.ndarray],
    read: Callable[[str, pa.RecordBatch], pa.Table],
) -> pa.Table:
    answers: list[pa.Table] = []
    positions: list[np.ndarray] = []
    for name, rows in parts.items():
        asked = keys.take(pa.array(rows))
        found = read(name, asked)
        if answers and found.schema != answers[0].schema:
            raise ConflictError(
                f"table {table.name!r} has different columns on the servers: an alteration reached only some servers; "
                "repeat it to apply it on the other servers"
            )
        answers.append(found)
        positions.append(rows[_places(asked, found, table)])
    order = np.argsort(np.concatenate(positions), kind="stable")
    return pa.concat_tables(answers).take(pa.array(order))


def _places(asked: pa.RecordBatch, found: pa.Table, table: TableDescription) -> np.ndarray:
    """Return for each found row the position of its key: both are in the same order, and some keys have no row."""
    if found.num_rows == asked.num_rows:
        return np.arange(asked.num_rows)
    names, columns = asked.schema.names, {column.name: column for column in table.columns}
    cells = [stored_cells(asked[name], columns[name]) for name in names]  # a key that is too long is cut
    numbered = pa.table([*cells, pa.array(np.arange(asked.num_rows))], [*names, _POSITION])
    there = found.select(names).cast(numbered.select(names).schema)
    kept = numbered.join(there, names, join_type="left semi", use_threads=False)
    return np.sort(kept[_POSITION].to_numpy())
