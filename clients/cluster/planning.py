"""Plans a scan over several servers: one snapshot for all, and each tablet once."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...schemas.cells.timestamp import parse_moment
from ...schemas.errors import InvalidArgumentError, StoreError, UnavailableError
from ...schemas.rows.scan import ScanSpec
from ...schemas.rows.scan_plan import ScanPlan
from ..flight.deadline import answered_within
from .definitions import half_altered
from .servers import Servers
from .tablet_locations import incomplete

_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
"""Seconds between plans while tablets move."""
_RELEASE_SECONDS = 5.0
"""The most that the end of a scan waits for a server that may be down."""


@dataclass(eq=False, slots=True)
class ServersPlan:
    """One scan, planned by all servers at one snapshot. For one thread."""

    spec: ScanSpec
    """Pinned to the snapshot."""
    snapshot: int
    plans: Mapping[str, ScanPlan]

    def renew(self, servers: Servers) -> None:
        """Plan again at the same snapshot, since tablets have moved. Raises as ``planned``."""
        self.release(servers)
        self.plans = planned(servers, self.spec).plans

    def release(self, servers: Servers) -> None:
        """Let the servers release what they keep for the scan."""
        _release(servers, self.plans)

    def part(self, name: str) -> ScanSpec:
        """Return the scan of the tablets that a server had when it planned. The server rejects it if its tablets, the
        table or the columns have changed."""
        plan = self.plans[name]
        part = {"here": True, "tablets_here": plan.tablets_here, "planned": plan.planned, "lease": plan.lease}
        return self.spec.model_copy(update={"split_bytes": None, "pin": False, **part})

    def tickets(self, name: str) -> list[ScanSpec]:
        """Return a scan for each split of a server. They follow a tablet that moves."""
        plan = self.plans[name]
        spec = self.spec.model_copy(update={"planned": plan.planned, "lease": plan.lease})
        return [split.ticket(spec) for split in self.plans[name].splits]

    def whole(self, locations: Mapping[str, Sequence[str]]) -> ScanPlan:
        """Return the plans as one; ``locations`` are the servers' addresses."""
        first = next(iter(self.plans.values()))
        splits = [
            split.model_copy(update={"server": name, "locations": list(locations.get(name, ())), **_told(plan)})
            for name, plan in self.plans.items()
            for split in plan.splits
        ]
        return first.model_copy(
            update={
                "splits": [split for split in splits if split.rows or self.spec.all_parts] or splits[:1],
                "explain": _summed({name: plan.explain for name, plan in self.plans.items()}),
                "hash": first.hash if all(plan.hash == first.hash for plan in self.plans.values()) else [],
                "tablets_here": first.tablets_all,
                "lease": None,  # each split has its server's lease
                "groups_at_most": None,  # each server answers for its tablets
            }
        )


def _told(plan: ScanPlan) -> dict[str, str | None]:
    return {"planned": plan.planned, "lease": plan.lease}


def now(servers: Servers, at_least: int = 0) -> int:
    """Return a timestamp at which all servers show every write acknowledged so far, and no later one.

    It is the latest of their clocks; the others follow it before this returns.

    Raises:
        UnavailableError: a server's clock is too far ahead for the others to follow.
    """
    return _latest(servers, servers.each(lambda store: store.now(at_least)))


def _now_there(servers: Servers, patient: bool) -> tuple[int, Set[str]]:
    """Return the same for the servers that can be reached, and their names: for scans that need no others.

    Without ``patient``, do not wait for a server that is down as long as another answers.

    Raises:
        UnavailableError: none can be reached, or a server's clock is too far ahead for the others to follow.
    """
    told, _ = servers.there(lambda store: store.now(), patient=patient)
    return _latest(servers, told), told.keys()


def _latest(servers: Servers, told: Mapping[str, int]) -> int:
    """Return the latest of the servers' timestamps, after the other servers have followed it."""
    ahead, latest = max(told.items(), key=lambda each: each[1])
    if behind := [name for name, timestamp in told.items() if timestamp < latest]:
        try:
            servers.each(lambda store: store.now(latest), behind)
        except InvalidArgumentError as error:  # the only argument is the timestamp
            raise UnavailableError(
                f"the clock of the server {ahead!r} is too far ahead ({error.message}): correct the clock; "
                "the server's timestamps stay ahead until the real time reaches them: see 'A clock that was ahead' in "
                "docs/servers.md"
            ) from None
    return latest


def planned(servers: Servers, spec: ScanSpec) -> ServersPlan:
    """Let all servers plan a scan at one snapshot. One that cannot be reached is left out; if it has tablets that the
    scan reads, wait for it.

    Raises:
        StoreError: a server that the scan needs cannot be reached, or one rejects the scan.
        ConflictError: the table's schema differs between servers.
        UnavailableError: a tablet stays in transit for longer than a move takes.
    """
    spec.checked()
    if spec.tablet is not None or spec.partition is not None:
        raise InvalidArgumentError("a ticket for a tablet is valid only at the server that made it")
    patient = False
    for pause in (*_PAUSES, None):
        snapshot, asked = _snapshot(servers, spec, patient)
        pinned = spec.pinned(snapshot).model_copy(update={"max_staleness": None})  # replicas lack the newest snapshot
        plans, away = _plans(servers, pinned.model_copy(update={"here": True}), patient)
        is_of_one_version = len({plan.schema_version for plan in plans.values()}) <= 1
        if is_of_one_version and plans.keys() <= asked and is_whole(plans):
            return ServersPlan(pinned, snapshot, plans)
        _release(servers, plans)
        if not is_of_one_version:
            raise half_altered(spec.table, {name: plan.schema_version for name, plan in plans.items()})
        if not plans.keys() <= asked:
            continue  # a server is back, and its clock may be ahead of the snapshot
        if away:
            if patient or pause is None:
                raise away
            patient = True
            continue
        if pause is not None:
            time.sleep(pause)
    raise incomplete(spec.table)


def _release(servers: Servers, plans: Mapping[str, ScanPlan]) -> None:
    for name, plan in plans.items():
        if plan.lease is not None:
            with suppress(StoreError), answered_within(_RELEASE_SECONDS):  # the lease expires anyway
                servers.store(name).release_scan(plan.lease)


def _plans(servers: Servers, spec: ScanSpec, patient: bool) -> tuple[dict[str, ScanPlan], UnavailableError | None]:
    return servers.there_with(lambda store: store.plan(spec), patient)


def _snapshot(servers: Servers, spec: ScanSpec, patient: bool) -> tuple[int, Set[str]]:
    """Return the snapshot for all servers, and the servers that may be read at it."""
    everyone = set(servers.names)
    if spec.changes is None and spec.as_of is not None:
        return parse_moment(spec.as_of), everyone
    if spec.changes is not None and spec.changes.until is not None:
        return parse_moment(spec.changes.until, "until"), everyone
    latest, asked = _now_there(servers, patient)
    since = 0 if spec.changes is None else parse_moment(spec.changes.since, "since")
    return max(latest, since), asked


def is_whole(plans: Mapping[str, ScanPlan]) -> bool:
    """Return whether the tablets in the plans of all servers are all that the scan reads, each once."""
    everything = {plan.read_all or plan.tablets_all for plan in plans.values()}
    added = sum(int(plan.read_here or plan.tablets_here, 16) for plan in plans.values()) % (1 << 64)
    return everything == {f"{added:016x}"}


def _summed(explained: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return counts summed over the servers, the other parts as the first server gives them, and each server's own."""
    first = next(iter(explained.values()))
    kept = {"snapshot", "since", "tablets"}
    added = {
        part: sum(each.get(part, 0) for each in explained.values())
        for part, value in first.items()
        if isinstance(value, int) and part not in kept
    }
    return {**first, **added, "servers": dict(explained)}
