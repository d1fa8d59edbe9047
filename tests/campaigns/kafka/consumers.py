"""The processes of the group, which come and go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from nyala.clients.cli.run import EXIT_CODES, FINDINGS
from nyala.schemas.errors import NotFoundError, UnavailableError
from tests.campaigns.kafka.consume_process import ASSIGNED, FENCED, UNANSWERED

PROGRAM = Path(__file__).with_name("consume_process.py")
SESSION_SECONDS = 2.0
PAUSE_SECONDS = 4.0
FEWEST, MOST = 2, 5
_ABSENT = {EXIT_CODES[UnavailableError.code], EXIT_CODES[NotFoundError.code]}
"""How a process ends that finds no store, no broker, or a broker that does not know the topic yet, at its start."""
_END_SECONDS = 90


class Consumer:
    """A process of the group; it is started again whenever it has ended."""

    def __init__(self, arguments: list[str], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self._process = self._start()
        self.paused_until: float | None = None

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen([sys.executable, *self._arguments], stdout=log, stderr=log, env=os.environ)

    def check(self) -> None:
        """Check that it runs, and let it go on after its pause; start it again, as a supervisor would, if it had no
        store or no broker at its start."""
        if self.paused_until is not None:
            if time.monotonic() > self.paused_until:
                self.resume()
        elif (code := self._process.poll()) in _ABSENT:
            self._process = self._start()
        elif code is not None:
            raise AssertionError(f"a consumer ended with {code}: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill it, and start the next one."""
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def end(self) -> None:
        """Ask it to end, and wait until it has."""
        self.resume()
        self._process.terminate()
        code = self._process.wait(_END_SECONDS)
        assert code in {0, FINDINGS, -signal.SIGTERM} | _ABSENT, f"{code}: {self._log.read_text()[-2000:]}"

    def pause(self) -> None:
        """Stop it where it is for longer than its session."""
        self._process.send_signal(signal.SIGSTOP)
        self.paused_until = time.monotonic() + PAUSE_SECONDS

    def resume(self) -> None:
        """Let it go on."""
        self.paused_until = None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it for good."""
        self._process.kill()
        self._process.wait()


class Group:
    """All processes of the group."""

    def __init__(self, arguments: list[str], folder: Path, count: int) -> None:
        self._arguments = arguments
        self._folder = folder
        self._started = 0
        self.running: list[Consumer] = []
        for _ in range(count):
            self.join()

    def join(self) -> bool:
        """Start one more, unless there are enough; return whether it was started."""
        if len(self.running) == MOST:
            return False
        self.running.append(Consumer(self._arguments, self._folder / f"log{self._started}"))
        self._started += 1
        return True

    def leave(self, number: int) -> bool:
        """Let one end in order, unless there are few; return whether it ended."""
        if len(self.running) == FEWEST:
            return False
        self.running.pop(number % len(self.running)).end()
        return True

    def check(self) -> None:
        """Check that all run."""
        for each in self.running:
            each.check()

    @property
    def has_paused(self) -> bool:
        """Whether one is paused now."""
        return any(each.paused_until is not None for each in self.running)

    def end(self) -> None:
        """Let all end in order."""
        for each in self.running:
            each.end()

    def close(self) -> None:
        """End all for good."""
        for each in self.running:
            each.close()

    def events(self) -> dict[str, int]:
        """Return how many assignments there were, partitions that went from one process to another, commits that were
        refused since another process was first, and answers that were lost."""
        assigned: list[tuple[float, str, list[str]]] = []
        fenced = unanswered = 0
        for log in self._folder.glob("log*"):
            for line in log.read_text().splitlines():
                if line.startswith(ASSIGNED):
                    _, moment, *parts = line.split()
                    assigned.append((float(moment), log.name, parts))
                fenced += line.startswith(FENCED)
                unanswered += line.startswith(UNANSWERED)
        owners: dict[str, str] = {}
        handed_over = 0
        for _, owner, parts in sorted(assigned):
            for part in parts:
                handed_over += owners.get(part, owner) != owner
                owners[part] = owner
        return {
            "assignments": len(assigned),
            "handed over": handed_over,
            "refused commits": fenced,
            "lost answers": unanswered,
        }
