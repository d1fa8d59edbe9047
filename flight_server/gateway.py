"""Gateway: a store that shares its tables with other servers, for clients that ask this one for all of a table.

What is asked of the tablets here is answered here; a scan or point read of tablets that others have too is put together
from all servers. Writes go to no other server: they are refused, with the name of the one that has the tablet.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ..clients.servers.members import Members
from ..clients.servers.store import PlacedStore
from ..schemas.description import ScanPlan
from ..schemas.errors import WrongServerError
from ..schemas.placement import Here
from ..schemas.scan import ScanSpec
from ..schemas.service import ScanStream, StoreService


class Gateway:
    """A ``StoreService``: what is not said here is the local store's."""

    def __init__(self, local: StoreService, here: Here) -> None:
        """Take over ``local``, which is what ``here`` says; other servers are connected when they are needed."""
        self._local = local
        self._here = here
        self._members = Members(here.placement, known={here.server: local})
        self._all = PlacedStore(self._members)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def placement(self) -> str:
        """Return the placement as JSON."""
        return self._here.placement.model_dump_json()

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService."""
        try:
            return self._local.scan(spec)
        except WrongServerError:
            if _is_for_one(spec):
                raise
            return self._all.scan(spec)

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService. Splits that others have carry their locations."""
        if _is_for_one(spec):
            return self._local.plan(spec)
        plan = self._all.plan(spec)
        mine = {"server": None, "locations": []}
        splits = [
            split.model_copy(update=mine) if split.server == self._here.server else split for split in plan.splits
        ]
        return plan.model_copy(update={"splits": splits})

    def get(self, table: str, keys: pa.RecordBatch) -> pa.Table:
        """See StoreService."""
        try:
            return self._local.get(table, keys)
        except WrongServerError:
            return self._all.get(table, keys)

    def close(self) -> None:
        """Close the connections to others, and the store."""
        self._members.close()
        self._local.close()


def _is_for_one(spec: ScanSpec) -> bool:
    """Whether a scan is meant for this server, by whoever asks them all."""
    return spec.here or spec.tablet is not None
