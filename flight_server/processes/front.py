"""Front: all processes of a store as one store, for clients that know only the public address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...clients.cluster import reading
from ...clients.cluster.servers import Servers
from ...clients.cluster.store import PlacedStore, worst
from ...clients.flight.deadline import answered_within
from ...clients.flight.store import FlightStore
from ...schemas.errors import WrongServerError
from ...schemas.protocol.service import ScanStream
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan
from ...schemas.store.description import Health
from ...schemas.store.metrics import Metrics, each_of, gauge, joined, merged
from ...schemas.table.partition_schema import TabletPartition

_HEALTH_SECONDS = 2.0
_METRICS_SECONDS = 5.0


class Front(PlacedStore):
    """The front door of several processes of a store: passes each request to the process that has the rows, and
    combines the answers. Thread safe."""

    def __init__(self, servers: Servers, stop: Callable[[], None]) -> None:
        """Take over ``servers``, which all answer; ``stop`` ends the processes when this is closed."""
        super().__init__(servers)
        self._stop = stop
        told = servers.each(lambda store: store.health())
        self._uuids = {name: health.store_uuid for name, health in told.items()}
        self._version = worst(told).version

    def scan(self, spec: ScanSpec) -> ScanStream:
        """See StoreService. Takes the tickets of its plans to the processes that made them."""
        if spec.tablet is None and spec.partition is None:
            return super().scan(spec.model_copy(update={"here": False}) if spec.here else spec)
        found = reading.opened(self.servers, self._planner(spec.table, spec.partition), spec)
        return replace(found, batches=reading.begun(found.batches))

    def plan(self, spec: ScanSpec) -> ScanPlan:
        """See StoreService. All tickets are read here: a client may be unable to reach the processes."""
        plan = super().plan(spec)
        here = {"server": None, "locations": []}
        return plan.model_copy(update={"splits": [split.model_copy(update=here) for split in plan.splits]})

    def told_row(self, table: str, key: Sequence[Any]) -> dict[str, Any] | None:
        """See RowRelay. The process that has the row is asked, and no other: its answer shows whether what is known
        here of the table is still true."""
        known = self._cache.known(table)
        if known is None or len(key) != len(known.description.primary_key):
            return None
        server = known.routed.of_key(key)
        store = None if server is None else self.servers.store(server)
        if not isinstance(store, FlightStore):
            return None
        about = known.description
        own_id = next((each.table_id for each in about.stores if each.server == server), None)
        with suppress(WrongServerError):
            answer = store.told_row(table, key)
            if answer is None:
                return None
            if (answer["table_id"], answer["schema_version"]) == (own_id, about.schema_version):
                return {**answer, "table_id": about.table_id}
        self._cache.forget(table)
        return None

    def health(self) -> Health:
        """See StoreService. Lists the processes; degraded while one of them is down. Does not wait for any
        that is down, nor long for one that does not answer."""
        with answered_within(_HEALTH_SECONDS):
            found, away = self.servers.there_now(lambda store: store.health())
        health = worst(found) if found else Health(status="ok", version=self._version)
        health = health.model_copy(update={"server": None, "processes": self._uuids})
        if away and health.status == "ok":
            return health.model_copy(update={"status": "degraded", "reason": away.message})
        return health

    def metrics(self) -> Metrics:
        """See StoreService. Those of the processes that answer, each number with the label ``process``."""
        with answered_within(_METRICS_SECONDS):
            found, _ = self.servers.there_now(lambda store: store.metrics())
        up = each_of("process", {name: name in found for name in self.servers.names})
        return merged(joined("process", found), [gauge("nyala_process_up", "1 if the process answers, else 0.", *up)])

    def close(self) -> None:
        """Close the connections, and stop the processes."""
        super().close()
        self._stop()

    def _planner(self, table: str, partition: TabletPartition | None) -> str:
        """Return the process that has a tablet, as far as is known here; empty if it is not known."""
        known = self._cache.of(table)
        return known.names[known.owners[known.partitions.index(partition)]] if partition in known.partitions else ""
