"""Point reads over several servers: keys go to those that have their tablets, rows come back in the order asked."""

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
        ConflictError: the rows have not the same columns on all servers.
        UnavailableError: their tablets are moved faster than they can be followed.
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
    """Return which of the keys asked for the rows found are: these come in the same order, some are left out."""
    if found.num_rows == asked.num_rows:
        return np.arange(asked.num_rows)
    names = asked.schema.names
    numbered = pa.Table.from_batches([asked]).append_column(_POSITION, pa.array(np.arange(asked.num_rows)))
    there = found.select(names).cast(asked.schema)
    kept = numbered.join(there, names, join_type="left semi", use_threads=False)
    return np.sort(kept[_POSITION].to_numpy())
