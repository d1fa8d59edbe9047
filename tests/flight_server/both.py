"""A holder and a replica of one store, each behind a server of this process."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from nyala.flight_server.security.security import Security
from nyala.flight_server.server import FlightServer
from nyala.flight_server.stores.follower import Follower as FollowingThread
from nyala.flight_server.stores.replica_store import ReplicaStore
from nyala.schemas.store.whereabouts import Holder as Having
from nyala.schemas.store.whereabouts import Whereabouts
from tests.doubles.machines import Machine
from tests.engine.replica.replicas import SCHEMA, Follower, Holder

ROWS = 20_000


class Both:
    """A holder and a replica, each behind a server of this process; the test moves the replica."""

    def __init__(self, security: Callable[[], Security | None] = lambda: None) -> None:
        """``security`` makes that of each server."""
        self.holder = Holder.of(Machine())
        self.follower = Follower(self.holder.machine)
        self.lag = 0.0
        at = Having(locations=[], epoch=1, process="p")
        having: Any = SimpleNamespace(
            whereabouts=lambda: Whereabouts(name="a", state="holder", holder=at),
        )
        self.served = FlightServer(
            cast(Any, self.holder.store), "grpc://127.0.0.1:0", security=security(), process=having
        )
        self.url = f"grpc://127.0.0.1:{self.served.port}"
        at.locations.append(self.url)
        following = cast(FollowingThread, self)
        self.store = ReplicaStore(self.whereabouts, "1", lambda: following, 5.0)
        standing_by: Any = SimpleNamespace(whereabouts=self.whereabouts)
        self.replica_served = FlightServer(self.store, "grpc://127.0.0.1:0", security=security(), process=standing_by)
        self.replica_url = f"grpc://127.0.0.1:{self.replica_served.port}"

    def make_table(self, name: str) -> None:
        """Make a table with rows for several messages, which the replica has."""
        table = self.holder.database.create_table(name, SCHEMA, ["id"])
        ids, random = pa.array(range(0, 2 * ROWS, 2), pa.int64()), Random(1)
        names = pa.array([random.randbytes(500).hex() for _ in range(ROWS)])
        table.insert(pa.table([ids, ids, names], schema=SCHEMA))
        table.maintain("flush")
        self.follower.catch_up()

    @property
    def lag_seconds(self) -> float:
        return self.lag

    @property
    def store_uuid(self) -> str:
        return self.holder.store.health().store_uuid

    @property
    def safe(self) -> int:
        return self.replica.safe

    @property
    def replica(self) -> Any:
        return self.follower.replica

    def whereabouts(self) -> Whereabouts:
        at = Having(locations=[self.url], epoch=1, process="p")
        return Whereabouts(name="a", state="standby", holder=at, lag_seconds=self.lag, safe=self.replica.safe)

    def close(self) -> None:
        for server in (self.replica_served, self.served):
            server.calls.end_all()  # a stream that a failed test has left
            server.shutdown()
        self.follower.replica.close()
        self.holder.store.close()
