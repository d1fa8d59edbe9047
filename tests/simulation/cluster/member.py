"""Member: a server of the cluster: the real life of a process for its store (`NameServer`), without a transport.

It is started, killed with all of its threads, frozen, cut off, and asked to release or to take the store, as the
processes of `tests/campaigns/failover` are. Its disk outlives it. A call of a client runs on a thread of the process,
and its answer may get lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Generic, TypeVar, cast

from nyala.engine import threads
from nyala.engine.bucket.patient import PatientBucket
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.serve.name_server import NameServer
from nyala.flight_server.server import FlightServer
from nyala.flight_server.stores.follower import Follower
from nyala.schemas.errors import StoreError, UnavailableError
from nyala.schemas.protocol.server_verbs import ServerVerbs
from nyala.schemas.protocol.service import StoreService
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.world import Kept, Undivided

from .network import DistantObjects, Network, Way

T = TypeVar("T")
NAME = "a"
_LOOK_SECONDS = 0.05
_RESTART_SECONDS = 1.0
_DRAIN_SECONDS = 5.0


class NoAnswerError(Exception):
    """A client waited for an answer in vain: the call may have had its effect, or may have it later."""


@dataclass
class Answer(Generic[T]):
    """What a call of a client comes to."""

    came: threads.Event
    value: T | None = None
    error: Exception | None = None
    is_broken: bool = False
    is_of_session: bool = False
    """Whether a process that loses the store does not wait for it."""


class Front:
    """Stands for the Flight server of a process: passes calls to the store that it serves."""

    def __init__(self, store: StoreService, process: ServerVerbs) -> None:
        self.served, self.process = store, process
        self.running: list[Answer[Any]] = []
        self.ends = 0
        """How often it ended all that ran."""
        self.calls = SimpleNamespace(metrics=SimpleNamespace(more=None), end_earlier=self._end_earlier)

    def serve_store(self, store: StoreService) -> None:
        """Serve another store from now on."""
        self.served = store

    def _end_earlier(self, seconds: float) -> None:
        earlier, until = list(self.running), threads.monotonic() + seconds
        waited = [answer for answer in earlier if not answer.is_of_session]
        while any(answer in self.running for answer in waited) and threads.monotonic() < until:
            threads.sleep(_LOOK_SECONDS)
        self.ends += 1
        for answer in earlier:
            if answer in self.running:
                break_off(answer)


def break_off(answer: Answer[Any]) -> None:
    """Let the client know that its connection broke."""
    answer.is_broken = True
    answer.came.set()


class Member:
    """A server: one process after the other, on one disk."""

    def __init__(self, number: int, network: Network, scheduler: Scheduler, options: StoreOptions) -> None:
        self.number, self.network, self._scheduler, self._options = number, network, scheduler, options
        self.location = f"grpc://m{number}:8815"
        self.way, self.clients_way = Way(), Way()
        self.is_replica = number % 2 == 1
        self.clock_error_seconds = 0.0
        """That of the next process."""
        self._disk = MemoryFileSystem()
        self._lives = 0
        self.process: Process | None = None
        self.front: Front | None = None
        self._server: NameServer | None = None
        self.defects: list[BaseException] = []
        """Errors that no process should meet."""

    def __str__(self) -> str:
        return f"m{self.number}"

    @property
    def has_store(self) -> bool:
        """Whether its process has the store, or believes so."""
        return self.process is not None and self._server is not None and self._server.has_store

    # Its life

    def start(self) -> None:
        """Start a process, unless one runs."""
        if self.process is not None:
            return
        self._lives += 1
        self.process = Process(f"{self}.{self._lives}")
        self.process.clock_error_seconds = self.clock_error_seconds
        self._disk._mutex = Undivided(self._scheduler)  # pyright: ignore[reportAttributeAccessIssue]
        self._scheduler.start(f"{self.process.name} main", partial(self._live, self.process), self.process)

    def kill(self) -> None:
        """Kill the process, in the midst of whatever it does."""
        process, front, self.process, self.front = self.process, self.front, None, None
        if process is None:
            return
        self._scheduler.kill(process)
        self._disk = self._disk.crash_image(Kept())
        for answer in front.running if front else ():
            break_off(answer)

    def freeze(self) -> Process | None:
        """Let the process stand still; return it."""
        if self.process is None or self.process.is_frozen:
            return None
        self._scheduler.freeze(self.process)
        return self.process

    def thaw(self, process: Process) -> None:
        """Let a process go on, unless it was killed meanwhile."""
        if not process.is_dead:
            self._scheduler.thaw(process)

    def stop(self) -> None:
        """Let the process end as it does after SIGTERM, as far as it comes in time."""
        server, front, process = self._server, self.front, self.process
        if server is None or front is None or process is None or process.is_frozen:
            return
        ended = threads.Event()

        def end() -> None:
            try:
                if server.stop(_DRAIN_SECONDS) and server.has_store:
                    store = front.served
                    front.serve_store(server.absent)
                    store.close()
            except StoreError:
                pass  # nothing was acknowledged that is not in the bucket
            finally:
                ended.set()

        self._scheduler.start(f"{process.name} stop", self._guarded(end), process)
        ended.wait(2 * _DRAIN_SECONDS)
        if self.process is process:
            self.kill()

    def _live(self, process: Process) -> None:
        home = BucketHome(
            PatientBucket(DistantObjects(self.network, self.way)), NAME, "memory://bucket", self._disk, probes=False
        )
        follow = (lambda home, standby: Follower(home, standby, self._options)) if self.is_replica else None
        server = NameServer(
            home,
            lambda home: Store.open(home, self._options),
            "simulated",
            self._options.lease_seconds,
            end_process=lambda: self.defects.append(AssertionError(f"the thread of {process.name} has failed")),
            follow=follow,
        )
        self._server, self.front = server, Front(server.absent, server)
        try:
            server.begin(cast(FlightServer, self.front), [self.location])
        except StoreError:
            # Its manager starts it again.
            self._scheduler.start(f"manager of {self}", partial(self._start_again, process), Process("manager"))
        except Exception as error:
            self.defects.append(error)

    def _start_again(self, process: Process) -> None:
        threads.sleep(_RESTART_SECONDS)
        if self.process is process:
            self.kill()
            self.start()

    def command(self, work: Callable[[NameServer], object]) -> None:
        """Have an operator's command done by the process; do not wait for it."""
        server, process = self._server, self.process
        if server is None or process is None or self.front is None:
            return

        def run() -> None:
            try:
                work(server)
            except StoreError:
                return  # it has the store, or has it not

        self._scheduler.start(f"{process.name} command", self._guarded(run), process)

    def _guarded(self, work: Callable[[], object]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self.defects.append(error)

        return guarded

    # Its clients

    def ask(self, work: Callable[[StoreService], T], seconds: float) -> T:
        """Return the answer of the store that the process serves.

        Raises:
            NoAnswerError: there was none in time, or the connection broke.
            UnavailableError: the process cannot be reached; the call had no effect. Or the store says so.
            StoreError: the store says so.
        """
        answer = Answer[T](threads.Event())
        self.begin(lambda front: work(front.served), answer, seconds)
        answer.came.wait(seconds)
        self.network.pass_by()
        if answer.error is not None and not answer.is_broken and not self.clients_way.loses_answers:
            raise answer.error
        if not answer.came.is_set() or answer.is_broken or self.clients_way.loses_answers:
            raise NoAnswerError
        return cast(T, answer.value)

    def begin(self, work: Callable[[Front], T], answer: Answer[T], seconds: float) -> Front:
        """Let the process begin a call of a client, which comes to ``answer``; return what took it.

        Raises:
            NoAnswerError: the way to it is cut, which takes so many seconds to find out.
            UnavailableError: the process cannot be reached.
        """
        self.network.pass_by()
        process, front = self.process, self.front
        if process is None or front is None:
            raise UnavailableError(f"{self} cannot be reached", locations=[])
        if self.clients_way.loses_requests:
            threads.sleep(seconds)
            raise NoAnswerError
        front.running.append(answer)
        self._scheduler.start(f"{process.name} call", partial(self._answer, front, work, answer), process)
        return front

    def _answer(self, front: Front, work: Callable[[Front], T], answer: Answer[T]) -> None:
        try:
            answer.value = work(front)
        except StoreError as error:
            answer.error = error
        except Exception as error:
            self.defects.append(error)
            answer.is_broken = True
        front.running.remove(answer)
        answer.came.set()
