"""The combinations of processes and clients, and the isolation level that each promises for each workload.

``docs/guarantees.md`` has them as a table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.campaigns.isolation.checker import (
    FRESH_SERIALIZABLE,
    FRESH_SNAPSHOT,
    READ_COMMITTED,
    STRICT,
    STRONG_SNAPSHOT,
    Level,
)
from tests.campaigns.isolation.clients import Workload
from tests.campaigns.isolation.places import Place, embedded, server, servers
from tests.campaigns.isolation.processes import failover, replica
from tests.campaigns.options import IN_BUCKET, LOADS, Features


@dataclass(frozen=True)
class Promise:
    """A level that a workload has."""

    workload: Workload
    level: Level
    is_of_each_key: bool = False
    """Whether the level is that of each key by itself."""


@dataclass
class Way:
    """A combination: how it begins, and what it promises."""

    start: Callable[[Path, int], AbstractContextManager[Place]]
    promises: Sequence[Promise]
    features: Features


_READS = ("scan", "scan of a moment", "scan of the past", "get", "get_many")
LISTS = Workload("lists", True, True, ("batch", "numbered", "conditional", "statement", "guarded"), _READS)
TRANSACTIONS = Workload("transactions", True, False, ("transaction", "guarded", "batch"), _READS)
REGISTERS = Workload(
    "registers", False, True, ("batch", "numbered", "conditional", "statement", "drop", "guarded"), _READS
)

_ONE_STORE = (Promise(LISTS, STRICT), Promise(TRANSACTIONS, STRONG_SNAPSHOT), Promise(REGISTERS, STRICT))
_EVERYWHERE = Workload("everywhere", False, True, ("batch",), ("get_many everywhere",), one_place=True)
_SPREAD = Workload(
    "spread", True, True, ("batch", "numbered", "conditional", "statement", "guarded"), _READS, may_be_partial=True
)
_SERVERS = (
    Promise(replace(LISTS, one_place=True), FRESH_SERIALIZABLE),
    Promise(replace(TRANSACTIONS, one_place=True), FRESH_SNAPSHOT),
    Promise(replace(REGISTERS, one_place=True), FRESH_SERIALIZABLE),
    Promise(_EVERYWHERE, READ_COMMITTED),
    Promise(_SPREAD, STRICT, is_of_each_key=True),
)
_STALE_READS = ("stale scan", "stale scan", "scan of a moment", "scan of the past", "get", "scan")
_STALE_SECONDS = 1.0
_REPLICA = tuple(
    Promise(replace(load, reads=_STALE_READS, staleness=_STALE_SECONDS), level)
    for load, level in ((LISTS, FRESH_SERIALIZABLE), (TRANSACTIONS, FRESH_SNAPSHOT), (REGISTERS, FRESH_SERIALIZABLE))
)
_ALONE = Features(LOADS, allowed={"durability", "maintenance", "home"})
WAYS: dict[str, Way] = {
    "embedded": Way(embedded, _ONE_STORE, _ALONE),
    "server": Way(server, _ONE_STORE, _ALONE),
    "servers": Way(servers, _SERVERS, Features(LOADS, without={"budget_bytes", "memory_bytes"})),
    "failover": Way(failover, _ONE_STORE, IN_BUCKET),
    "replica": Way(replica, _REPLICA, IN_BUCKET),
}
