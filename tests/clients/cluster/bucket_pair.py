"""Servers that share their tables, whose stores are in buckets: another machine takes a store over."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nyala.engine.mvcc.clock import SystemClock
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.sweep_bucket import leftovers, sweep
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from tests.clients.cluster.pair import Pair
from tests.doubles.machines import OPTIONS, Machine
from tests.engine.offload.failing_calls import MachineGoneError


class _TimeOfDay(SystemClock):
    """The clock on the wall of all machines, which others look at who wait for a silent holder."""

    ahead_seconds = 0.0

    def physical_microseconds(self) -> int:
        return super().physical_microseconds() + round(self.ahead_seconds * 1e6)


class BucketPair(Pair):
    """Two servers, each with a store of its name in one bucket, or in a bucket of its own; some in ``directories``."""

    def __init__(self, names: str = "ab", one_bucket: bool = True, directories: str = "", **options: Any) -> None:
        first = Machine()
        self.machines = {
            name: Machine(first.shared if one_bucket else None) for name in names if name not in directories
        }
        """The machine of each server in a bucket. Time passes for each store by itself."""
        self.happens_at: int | None = None
        self.happens: Callable[[], object] = lambda: None
        """What happens at the call of this number."""
        self.former: list[tuple[Machine, Store]] = []
        """Those that were replaced, and do not know it yet."""
        timing = {name: getattr(OPTIONS, name) for name in ("lease_seconds", "log_patience_seconds")}
        self.time_of_day = _TimeOfDay()
        super().__init__(names, **timing, **options)

    def opened(self, name: str, options: StoreOptions) -> Store:
        where = self.machines[name].home(name) if name in self.machines else self.disks[name]
        return Store.open(where, options, self.time_of_day)

    def crash(self, name: str, seed: int = 0) -> None:
        """Cut the machine of a server off, and let another one take its store over."""
        if name not in self.machines:
            super().crash(name, seed)
            return
        self.machines[name].objects.is_away = True
        self.replace(name)

    def replace(self, name: str) -> Store:
        """Let another machine take the store of a server over, whose holder stands still; return the former store."""
        self.former.append((self.machines[name], self.stores[name]))
        self.time_of_day.ahead_seconds += OPTIONS.lease_seconds
        self.machines[name] = self.machines[name].other()
        self.start(name)
        return self.former[-1][1]

    def watched(self, name: str, verb: str, found: Any) -> Any:
        """See Pair. Something may happen before a call, or after it, and whoever drives the move goes on."""

        def call(*arguments: Any) -> Any:
            happens = self.happens_at == len(self.calls)
            self.calls.append(f"{name} {verb}")
            if happens and not self.after:
                self.happens()
            answer = getattr(self.gateways[name], verb)(*arguments)
            if happens and self.after:
                self.happens()
            return answer

        return call

    def close(self) -> None:
        super().close()
        for machine, store in self.former:
            machine.objects.is_away, machine.objects.away_from = False, None
            with suppress(StoreError, MachineGoneError):  # it learns at once that somebody else has the store
                store.close()

    def check_sound(self, is_swept: bool = True) -> None:
        """Nothing that a store needs is missing, and nothing stays behind; once a sweep was made, if ``is_swept``."""
        for name, machine in self.machines.items():
            home = machine.other().home(name)
            report = verify_bucket(home)
            assert report.is_sound, report.problems
            if is_swept:
                sweep(home)
            assert not leftovers(home)
