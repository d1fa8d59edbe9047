"""The processes of a subject under watch: their memory at its peak, and an end to what takes too much of anything."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
LOOK_SECONDS = 0.2
START_SECONDS_MAX = 300


@dataclass(frozen=True)
class Limits:
    """A subject that needs more is ended, and its figure says so."""

    seconds: float = 1_800
    small_seconds: float = 300
    memory_bytes: int = 16_000_000_000
    free_bytes: int = 6_000_000_000
    """What its files must leave free on the disk."""


@dataclass
class Outcome:
    """What the processes of a task answered, and the peak of their memory with that of the store's server."""

    answers: list[dict[str, Any]] = field(default_factory=list)
    begin: float = 0.0
    end: float = 0.0
    peak_bytes: int = 0
    ended_by: str | None = None
    """The limit that was passed: ``time``, ``memory`` or ``disk``."""

    @property
    def seconds(self) -> float:
        """From the word to begin until the last answer, or until the end by force."""
        return max([self.end, *(answer["end"] for answer in self.answers)]) - self.begin


class Team:
    """Worker processes of one task, ready to begin; ``servers`` are the store's own processes."""

    def __init__(self, commands: Iterable[list[str]], servers: list[int], log: Path) -> None:
        self.servers, self.log = servers, log
        self.outputs: list[Path] = []
        self.workers: list[subprocess.Popen[str]] = []
        for number, command in enumerate(commands):
            output = log.with_name(f"{log.name}-{number}")
            self.outputs.append(output)
            with output.open("w") as out, log.open("a") as errors:
                self.workers.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "bench.upserts.worker", *command],
                        stdin=subprocess.PIPE,
                        stdout=out,
                        stderr=errors,
                        cwd=CHECKOUT,
                        text=True,
                    )
                )

    def run(self, until_seconds: float, hard_seconds: float, limits: Limits) -> Outcome:
        """Let all begin at once; return when all have ended, or when a limit is passed.

        ``until_seconds`` is when workers begin no further call, ``hard_seconds`` when they are killed.
        """
        try:
            self._wait_for("ready", START_SECONDS_MAX)
            outcome = Outcome(begin=time.time())
            for worker in self.workers:
                assert worker.stdin
                worker.stdin.write(f"{outcome.begin + until_seconds}\n")
                worker.stdin.flush()
            while not self._all_wrote("end"):
                outcome.ended_by = self._passed(limits, time.time() - outcome.begin > hard_seconds)
                if outcome.ended_by:
                    break
                time.sleep(LOOK_SECONDS)
            outcome.peak_bytes = peak_bytes(self._ids())
            if outcome.ended_by:
                outcome.end = time.time()
                self._kill()
            outcome.answers = [json.loads(line) for lines in self._lines() for line in lines if line.startswith("{")]
            return outcome
        finally:
            self._close()

    def _ids(self) -> list[int]:
        return family([*self.servers, *(worker.pid for worker in self.workers)])

    def _lines(self) -> list[list[str]]:
        return [output.read_text().splitlines() for output in self.outputs]

    def _all_wrote(self, word: str) -> bool:
        """Whether all workers wrote a word; raise if one ended without it."""
        ended = [worker.poll() for worker in self.workers]
        lines = self._lines()
        for code, wrote in zip(ended, lines, strict=True):
            if code is not None and word not in wrote:
                raise RuntimeError(f"a worker ended with {code}: {self.log.read_text()[-2_000:]}")
        return all(word in wrote for wrote in lines)

    def _wait_for(self, word: str, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._all_wrote(word):
            if time.monotonic() > deadline:
                raise RuntimeError(f"a worker was not {word} after {seconds} s: {self.log.read_text()[-2_000:]}")
            time.sleep(LOOK_SECONDS)

    def _passed(self, limits: Limits, is_late: bool) -> str | None:
        if is_late:
            return "time"
        if memory_bytes(self._ids()) > limits.memory_bytes:
            return "memory"
        return "disk" if shutil.disk_usage(self.log.parent).free < limits.free_bytes else None

    def _kill(self) -> None:
        for worker in self.workers:
            worker.kill()

    def _close(self) -> None:
        """Let the workers close their stores; those that are still at work after an error are killed."""
        if not self._are_idle():
            self._kill()
        for worker in self.workers:
            assert worker.stdin
            with suppress(BrokenPipeError):
                worker.stdin.close()
        for worker in self.workers:
            worker.wait(timeout=START_SECONDS_MAX)

    def _are_idle(self) -> bool:
        return all("end" in wrote for wrote in self._lines())


def family(process_ids: list[int]) -> list[int]:
    """Return processes with all that are below them."""
    below: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                parent = int(Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[1])
                below.setdefault(parent, []).append(int(entry))
    members = list(process_ids)
    for each in members:
        members += below.get(each, [])
    return members


def memory_bytes(process_ids: list[int]) -> int:
    """Return the memory that processes have now, that which they share counted once."""
    return _summed(process_ids, "VmRSS")


def peak_bytes(process_ids: list[int]) -> int:
    """Return the sum of the peaks of processes since each began, the memory that they share counted once."""
    return _summed(process_ids, "VmHWM")


def _summed(process_ids: list[int], figure: str) -> int:
    own, shared = 0, 0
    for each in process_ids:
        with suppress(OSError):
            lines = Path("/proc", str(each), "status").read_text().splitlines()
            pairs = (line.removesuffix(" kB").split(":") for line in lines if line.endswith(" kB"))
            values = {name: int(size) << 10 for name, size in pairs}
            own += values.get(figure, 0) - values.get("RssShmem", 0)
            shared = max(shared, values.get("RssShmem", 0))
    return own + shared
