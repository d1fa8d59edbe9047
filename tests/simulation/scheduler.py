"""Scheduler: of all threads of a simulation one runs, until it waits or gives its turn away; time is virtual.

Each simulated thread is a real one that waits for its baton most of the time. At a *point* (a lock is taken, a file is
synced) the running thread asks `Choices` who goes on. Time stands still while threads run, but for the little that each
point takes; when all wait, it jumps to the moment that the first of them waits for. So a run depends on its seed alone,
and hours pass in a second.

Where all wait and none for a moment, the threads are in a deadlock: the run ends with the place of each.

Threads may belong to a *process*, which can be frozen for a while, or be killed: then its threads end where they are.
"""

from __future__ import annotations

import _thread
import hashlib
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from .choices import Choices

Answer = TypeVar("Answer")

_STEPS_MOST = 2_000_000
_ABANDONED_SECONDS = 10.0
_ENDLESS = float("inf")


def _nothing() -> None:
    """Do nothing."""


class Abandoned(BaseException):
    """The run is over, or the process of a thread was killed: the thread ends here, and nothing that it does counts."""


class HangError(AssertionError):
    """All threads wait for each other, or no end is in sight."""


class Stopped(BaseException):
    """The run was stopped at the step that `Scheduler.stop_at` named."""


class Process:
    """Threads that are frozen, or die, together. The threads that they start belong to it, too."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_frozen = self.is_dead = False
        self.parked: list[int] = []
        """Its threads that could go on, were it not frozen."""
        self.clock_error_seconds = 0.0
        """How far its time of day is ahead."""


class Task:
    """A simulated thread."""

    __slots__ = ("_ended", "baton", "ident", "is_over", "is_woken", "name", "number", "process", "queue", "until")

    def __init__(self, number: int, name: str, process: Process | None) -> None:
        self.number, self.name, self.process = number, name, process
        self.baton = _thread.allocate_lock()
        self.baton.acquire()
        self.ident = 0
        self._ended = _thread.allocate_lock()
        """Free when the real thread is at its end, or was never started."""
        self.queue: list[Task] | None = None
        """The queue in which it waits to be woken."""
        self.until = _ENDLESS
        """The moment at which it goes on, woken or not."""
        self.is_woken = self.is_over = False

    def begin(self, work: Callable[[], object]) -> None:
        """Start the real thread, without the wait for its beginning that `threading.Thread` makes: as much work again
        as a small call."""
        self._ended.acquire()

        def live() -> None:
            if (trace := threading.gettrace()) is not None:
                sys.settrace(trace)
            try:
                work()
            finally:
                self._ended.release()

        _thread.start_new_thread(live, ())

    def has_ended(self, seconds: float) -> bool:
        """Wait for the end of the real thread; return whether it came."""
        if not self._ended.acquire(timeout=seconds):
            return False
        self._ended.release()
        return True

    @property
    def is_dead(self) -> bool:
        """Whether its process was killed."""
        return self.process is not None and self.process.is_dead


class Scheduler:
    """Runs threads by turns. ``tick`` is the longest time that a point takes, in seconds; a run that takes more than
    ``steps_most`` steps is a failure."""

    def __init__(
        self,
        choices: Choices,
        random: Random,
        tick: float = 1e-4,
        lines_kept: int = 0,
        steps_most: int = _STEPS_MOST,
    ) -> None:
        self._choices, self._random, self._tick = choices, random, tick
        self._steps_most = steps_most
        self._tasks: list[Task] = []
        self._runnable: list[int] = []
        self._waiting: list[Task] = []
        self._next_bell = _ENDLESS
        """No thread waits for an earlier moment."""
        self._started = 0
        self.running: Task | None = None
        self.now = 0.0
        """The virtual time since the start, in seconds."""
        self.steps = 0
        self.switches = 0
        self.failures: list[tuple[str, BaseException]] = []
        """The errors that ended threads."""
        self.is_over = False
        self.undivided_depth = 0
        """Above 0 nobody else may go on."""
        self._hash = hashlib.sha256()
        self._lines: list[str] = []
        self._lines_kept = lines_kept
        self._end_of_run: BaseException | None = None
        self._stop_step = _ENDLESS
        self._at_stop: Callable[[], object] = lambda: None

    # The run

    def stop_at(self, step: int, action: Callable[[], object]) -> None:
        """Stop the run at a step, wherever its threads are, after an action; `run` raises ``Stopped``."""
        self._stop_step, self._at_stop = step, action

    def run(self, work: Callable[[], Answer]) -> Answer:
        """Run ``work`` as the first thread; the threads that are left at its end are abandoned.

        Raises:
            HangError: see the head of this module.
        """
        answers: list[Answer] = []
        errors: list[BaseException] = []
        first = self._task("main", None)
        self._runnable.append(first.number)

        def host() -> None:
            first.ident = _thread.get_ident()
            self.running = first
            try:
                answers.append(work())
            except Abandoned:
                errors.append(self._end_of_run or HangError("the run was abandoned"))
            except BaseException as error:
                errors.append(self._end_of_run or error)  # a library may say Abandoned in words of its own
            finally:
                self._end()

        # A thread of its own: what the engine keeps for each thread is new, too.
        thread = threading.Thread(target=host, name="main", daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return answers[0]

    def _end(self) -> None:
        self.is_over = True
        for task in self._tasks:
            if task.number and not task.is_over:
                self.running = task
                task.baton.release()
                if not task.has_ended(_ABANDONED_SECONDS):
                    self.failures.append((task.name, HangError("an abandoned thread does not end")))
        self.running = None

    def start(self, name: str, work: Callable[[], object], process: Process | None = None) -> Task:
        """Start a thread; the caller goes on, or the thread does. It belongs to a process, by default the caller's."""
        starter = self.mine()
        task = self._task(name, process or (starter.process if starter else None))

        def run() -> None:
            nonlocal work
            task.ident = _thread.get_ident()
            task.baton.acquire()
            try:
                if not self.is_over and not task.is_dead:
                    work()
            except Abandoned:
                pass
            except BaseException as error:
                if not self.is_over and not task.is_dead:  # else it may be Abandoned in other words
                    self.failures.append((task.name, error))
            finally:
                work = _nothing  # what it alone kept goes now, not beside the next turn
                task.is_over = True
                if not self.is_over and not task.is_dead:
                    self._leave(task)

        task.begin(run)
        self._admit(task)
        self.note("start", name)
        self.point()
        return task

    def _task(self, name: str, process: Process | None) -> Task:
        task = Task(self._started, name, process)
        self._started += 1
        self._tasks.append(task)
        return task

    # The turn

    def mine(self) -> Task | None:
        """Return the running thread if it is the caller; None: the caller is no thread of a run that goes on."""
        running = self.running
        if self.is_over:
            if running is not None and running.ident == _thread.get_ident() and running.number:
                raise Abandoned
            return None
        if running is None or running.ident != _thread.get_ident():
            return None
        if running.is_dead:
            raise Abandoned
        return running

    def point(self) -> None:
        """Give another thread the chance to go on."""
        running = self.mine()
        if running is None or self.undivided_depth:
            return
        self._step(running)
        self.now += self._random.random() * self._tick
        if self.now >= self._next_bell:
            self._ring()
        if len(self._runnable) > 1:
            self._go_on(running, self._choices.next(self._runnable, running.number, self.steps))

    def _step(self, running: Task) -> None:
        self.steps += 1
        if self.steps > self._steps_most:
            raise self._hung(f"no end after {self.steps:,} steps")
        if self.steps == self._stop_step:
            with self.undivided():
                self._at_stop()
            self._end_of_run = Stopped()
            self._give_up(running)

    def wait(self, queue: list[Task], until: float = _ENDLESS) -> bool:
        """Wait in ``queue`` until `wake` takes the thread out of it, or until a moment; return whether it was woken."""
        running = self.mine()
        if running is None:
            raise RuntimeError("a thread from outside of the simulation would wait in it")
        if self.undivided_depth:
            raise RuntimeError("a thread would wait within a step that nobody may interrupt")
        self._step(running)
        running.queue, running.until, running.is_woken = queue, until, False
        queue.append(running)
        self._waiting.append(running)
        self._next_bell = min(self._next_bell, until)
        self._runnable.remove(running.number)
        self._leave(running)
        return running.is_woken

    def wake(self, queue: list[Task], most: int = 1 << 30) -> None:
        """Let the first threads of a queue go on."""
        for task in queue[:most]:
            task.is_woken = True
            self._ready(task)

    def _ready(self, task: Task) -> None:
        if task.queue is not None:
            task.queue.remove(task)
        task.queue, task.until = None, _ENDLESS
        self._waiting.remove(task)
        self._admit(task)

    def _admit(self, task: Task) -> None:
        """Let a thread go on, unless its process is frozen: then, as soon as that is not."""
        if task.process is not None and task.process.is_frozen:
            task.process.parked.append(task.number)
        else:
            self._runnable.append(task.number)
            self._runnable.sort()

    def _ring(self) -> None:
        """Let those go on whose moment has come."""
        due = [task for task in self._waiting if task.until <= self.now]
        for task in sorted(due, key=lambda task: (task.until, task.number)):
            self._ready(task)
        self._next_bell = min((task.until for task in self._waiting), default=_ENDLESS)

    def _leave(self, running: Task) -> None:
        """Let another thread go on: the caller waits, or is over."""
        if running.is_over:
            self._runnable.remove(running.number)
        while not self._runnable:
            moment = min((task.until for task in self._waiting), default=_ENDLESS)
            if moment == _ENDLESS:
                self._hung("all threads wait for each other")
                break
            self.now = max(self.now, moment)
            self._ring()
        if self._end_of_run is not None:
            self._give_up(running)
            return
        chosen = self._choices.next(self._runnable, None, self.steps)
        self._go_on(running, chosen)

    def _go_on(self, running: Task, number: int) -> None:
        if number == running.number:
            return
        task = self._tasks[number]
        self.switches += 1
        self.note("turn", task.name)
        self.running = task
        task.baton.release()
        if running.is_over:
            return
        running.baton.acquire()
        if self.is_over or running.is_dead:
            raise Abandoned

    # Processes

    def freeze(self, process: Process) -> None:
        """Let no thread of a process go on, until `thaw`. For a caller outside of it."""
        self.note("freeze", process.name)
        process.is_frozen = True
        process.parked = [number for number in self._runnable if self._tasks[number].process is process]
        self._runnable = [number for number in self._runnable if number not in process.parked]

    def thaw(self, process: Process) -> None:
        """Let the threads of a process go on."""
        self.note("thaw", process.name)
        process.is_frozen = False
        self._runnable = sorted(self._runnable + process.parked)
        process.parked = []

    @property
    def is_ending(self) -> bool:
        """Whether the running thread was killed, and ends."""
        return self.running is not None and self.running.is_dead

    def kill(self, process: Process) -> None:
        """End all threads of a process, wherever they are. For a caller outside of it."""
        self.note("kill", process.name)
        killer, process.is_dead = self.running, True
        doomed = [task for task in self._tasks if task.process is process and not task.is_over]
        for task in doomed:
            if task.queue is not None:
                task.queue.remove(task)
                self._waiting.remove(task)
                task.queue = None
        self._runnable = [number for number in self._runnable if self._tasks[number] not in doomed]
        process.parked = []
        for task in doomed:
            self.running = task
            task.baton.release()
            if not task.has_ended(_ABANDONED_SECONDS):
                self.failures.append((task.name, HangError("a killed thread does not end")))
        self.running = killer

    # Ends

    def _hung(self, reason: str) -> BaseException:
        if self._end_of_run is None:
            self._end_of_run = HangError(f"{reason}\n{self._places()}")
        return self._end_of_run

    def _give_up(self, running: Task) -> None:
        """End the run from within: the first thread raises what is wrong."""
        first = self._tasks[0]
        self.is_over = True
        if running is first:
            raise Abandoned
        first.baton.release()
        if not running.is_over:
            running.baton.acquire()
            raise Abandoned

    def _places(self) -> str:
        frames = sys._current_frames()
        texts = []
        for task in self._tasks:
            if not task.is_over and task.ident in frames:
                stack = traceback.extract_stack(frames[task.ident])
                places = [f"{entry.filename.rsplit('/', 3)[-1]}:{entry.lineno} {entry.name}" for entry in stack[-12:]]
                texts.append(f"  {task.name}: {' < '.join(reversed(places))}")
        return "\n".join(texts)

    @contextmanager
    def undivided(self) -> Iterator[None]:
        """Let no other thread go on meanwhile: a step of the world, not of the product."""
        self.undivided_depth += 1
        try:
            yield
        finally:
            self.undivided_depth -= 1

    # The trace

    def note(self, event: str, detail: str) -> None:
        """Add a line to the trace: a seed has one trace, byte for byte."""
        line = f"{self.steps} {self.now:.6f} {self.running.name if self.running else '-'} {event} {detail}"
        self._hash.update(line.encode())
        if self._lines_kept:
            self._lines.append(line)
            if len(self._lines) > 2 * self._lines_kept:
                del self._lines[: -self._lines_kept]

    @property
    def trace(self) -> str:
        """A digest of all that happened, in its order."""
        return self._hash.hexdigest()

    @property
    def lines(self) -> list[str]:
        """The last lines of the trace."""
        return self._lines[-self._lines_kept :] if self._lines_kept else []
