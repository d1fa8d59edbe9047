"""Network: the bucket as each process sees it: requests take time, get lost, come late or twice, or are refused.

A request is on its way for some milliseconds. Then it may be lost; have its effect, and lose its answer; have it some
seconds later, when who sent it has given up, or is dead; have it twice; or be refused for now. Each process has a *way*
to the bucket, which can be cut in either direction.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, TypeVar

from nyala.engine import threads
from nyala.engine.bucket.memory import MemoryObjects
from nyala.engine.bucket.objects import Objects, pieces_of
from nyala.engine.fs.filesystem import views_of
from tests.doubles.faulty_bucket import CHANGES, Fault
from tests.simulation.scheduler import Process, Scheduler

if TYPE_CHECKING:
    from nyala.engine.fs.filesystem import BytesLike, ReadableFile

T = TypeVar("T")
_ON_ITS_WAY_SECONDS = 0.01
_TIMEOUT_SECONDS = 5.0
_LATE_SECONDS = 20.0
_LINGER_CHANCE, _LINGER_SECONDS = 0.1, 3.0
_FAULTS = (Fault.BEFORE, Fault.AFTER, Fault.TWICE, Fault.LATE, Fault.CONFLICT, Fault.AGAIN)


@dataclass
class Way:
    """The way of one process to the bucket, or to its clients: which direction is cut."""

    loses_requests: bool = False
    loses_answers: bool = False

    def mend(self) -> None:
        """Cut nothing."""
        self.loses_requests = self.loses_answers = False


class Network:
    """The way to a bucket in memory. ``fault_chance``: of a request to go wrong; ``slow_chance``: to take seconds."""

    def __init__(self, scheduler: Scheduler, random: Random, bytes_a_second: int = 0) -> None:
        """``bytes_a_second``: what the line of a put carries; 0: any."""
        self._scheduler, self._random = scheduler, random
        self._bytes_a_second = bytes_a_second
        self._outside = Process("network")
        self.shared = MemoryObjects()
        self.fault_chance = self.slow_chance = 0.0
        self.under_way = 0
        """Requests that come later, though nobody waits for them."""

    def pass_by(self) -> None:
        """Let the time pass that a message takes."""
        threads.sleep(self._random.random() * _ON_ITS_WAY_SECONDS)

    def linger(self) -> None:
        """Let a client take its time now and then before it takes the next message of a stream."""
        if self._random.random() < _LINGER_CHANCE:
            threads.sleep(self._random.random() * _LINGER_SECONDS)

    def request(self, way: Way, verb: str, name: str, effect: Callable[[], T], timeout: float, size: int = 0) -> T:
        """Make one request, which carries ``size`` bytes. Raises OSError as object stores do."""
        self.pass_by()
        if size and self._bytes_a_second:
            threads.sleep(size / self._bytes_a_second)
        if self._random.random() < self.slow_chance:
            threads.sleep(self._random.random() * timeout)
        fault = self._drawn_fault()
        if fault is not None:
            self._scheduler.note("fault", f"{fault.name} {verb} {name}")
        if fault is Fault.CONFLICT:
            raise self._refused(verb, name)
        if fault is Fault.BEFORE or way.loses_requests:
            raise self._unanswered(verb, name, timeout)
        if verb in CHANGES:
            if fault in (Fault.LATE, Fault.AGAIN):
                self._come_later(effect)
            if fault is Fault.TWICE:
                self._land(effect)
        if fault is Fault.LATE:
            raise self._unanswered(verb, name, timeout)
        with self._scheduler.undivided():
            answer = effect()
        if fault is Fault.AFTER or way.loses_answers:
            raise self._unanswered(verb, name, timeout)
        self.pass_by()
        return answer

    def _drawn_fault(self) -> Fault | None:
        return self._random.choice(_FAULTS) if self._random.random() < self.fault_chance else None

    def _refused(self, verb: str, name: str) -> OSError:
        if verb == "put_if_absent":
            return FileExistsError(errno.EEXIST, "others race for the name", name)
        return OSError(errno.EBUSY, "slow down", name)

    def _unanswered(self, verb: str, name: str, timeout: float) -> OSError:
        threads.sleep(timeout)
        return OSError(errno.EIO, f"no answer to {verb}", name)

    def _come_later(self, effect: Callable[[], object]) -> None:
        """Have an effect after a while, whatever becomes of the process."""
        seconds = self._random.random() * _LATE_SECONDS
        self.under_way += 1

        def come() -> None:
            threads.sleep(seconds)
            self._land(effect)
            self.under_way -= 1

        self._scheduler.start("late request", come, self._outside)

    def _land(self, effect: Callable[[], object]) -> None:
        try:
            with self._scheduler.undivided():
                effect()
        except OSError:
            return  # nobody hears it


class DistantObjects:
    """The objects of the bucket at the end of a process's way: see ``Objects``."""

    def __init__(self, network: Network, way: Way, timeout: float = _TIMEOUT_SECONDS) -> None:
        self._network, self._way, self._timeout = network, way, timeout
        self._inner: Objects = network.shared

    def __repr__(self) -> str:
        return "the bucket"

    def within(self, seconds: float) -> DistantObjects:
        return DistantObjects(self._network, self._way, min(seconds, self._timeout))

    def put_if_absent(self, name: str, content: bytes) -> None:
        self._request("put_if_absent", name, lambda: self._inner.put_if_absent(name, content), len(content))

    def put(self, name: str, content: BytesLike | ReadableFile) -> None:
        whole = b"".join(views_of(pieces_of(content)))  # the file may be gone when it lands
        self._request("put", name, lambda: self._inner.put(name, whole), len(whole))

    def get(self, name: str) -> bytes:
        return self._request("get", name, lambda: self._inner.get(name))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._request("get_ranges", name, lambda: self._inner.get_ranges(name, ranges))

    def size(self, name: str) -> int:
        return self._request("size", name, lambda: self._inner.size(name))

    def list(self, prefix: str, after: str) -> list[tuple[str, int]]:
        return self._request("list", prefix, lambda: self._inner.list(prefix, after))

    def delete(self, names: Sequence[str]) -> None:
        self._request("delete", " ".join(names), lambda: self._inner.delete(names))

    def copy(self, source: str, target: str) -> None:
        self._request("copy", target, lambda: self._inner.copy(source, target))

    def _request(self, verb: str, name: str, effect: Callable[[], T], size: int = 0) -> T:
        return self._network.request(self._way, verb, name, effect, self._timeout, size)
