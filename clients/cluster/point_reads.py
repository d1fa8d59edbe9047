"""Point reads over several servers: each key goes to its tablet's server; rows come back in the order of the keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ...schemas.errors import ConflictError, UnavailableError, WrongServerError
from .servers import Servers
from .tablet_locations import TabletLocationsCache

_TURNS_MAX = 20
_POSITION = "_position"


def get(servers: Servers, cache: TabletLocationsCache, table: str, keys: pa.RecordBatch) -> pa.Table:
    """Return the live rows of the keys, in the order asked.

    Raises:
        ConflictError: the columns differ between servers.
        UnavailableError: tablets move faster than the reads can follow.
    """
    for _ in range(_TURNS_MAX):
        parts = cache.of(table).by_server(keys)
        try:
            if len(parts) == 1:
                return servers.store(next(iter(parts))).get(table, keys)
            return _gathered(servers, table, keys, parts)
        except WrongServerError:
            cache.forget(table)
    raise UnavailableError("the tablets of the keys keep moving between servers; try again", 1.0)


def _gathered(servers: Servers, table: str, keys: pa.RecordBatch, parts: dict[str, np.ndarray]) -> pa.Table:
    answers: list[pa.Table] = []
    positions: list[np.ndarray] = []
    for name, rows in parts.items():
        asked = keys.take(pa.array(rows))
        found = servers.store(name).get(table, asked)
        if answers and found.schema != answers[0].schema:
            raise ConflictError(
                f"table {table!r} has different columns on the servers: an alteration reached only some of "
                "them; repeat it to apply it on the others"
            )
        answers.append(found)
        positions.append(rows[_places(asked, found)])
    order = np.argsort(np.concatenate(positions), kind="stable")
    return pa.concat_tables(answers).take(pa.array(order))


def _places(asked: pa.RecordBatch, found: pa.Table) -> np.ndarray:
    """Return for each found row the position of its key: both are in the same order, and some keys have no row."""
    if found.num_rows == asked.num_rows:
        return np.arange(asked.num_rows)
    names = asked.schema.names
    numbered = pa.Table.from_batches([asked]).append_column(_POSITION, pa.array(np.arange(asked.num_rows)))
    there = found.select(names).cast(asked.schema)
    kept = numbered.join(there, names, join_type="left semi", use_threads=False)
    return np.sort(kept[_POSITION].to_numpy())
