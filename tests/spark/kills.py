"""Kill executors, Python workers, drivers and the server of Spark jobs at random, and compare all rows with a model.

    python tests/spark/kills.py --seconds 300 --seed 0

A driver (`kill_driver.py`) with two executors changes, reads, copies and streams one table, step by step
(`kill_steps.py`); some of its tasks fail by themselves, and slow ones run twice. Whatever is killed meanwhile, each
step is done once or, if it was the driver, perhaps not at all. In the end two streams have told of every change once,
and nothing that was staged is left.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))

from kill_steps import SCHEMA, Step, Steps, compare
from streaming import JOURNAL, NO_PYTHON

import nyala
from tests.crash.kill9 import Server
from tests.crash.survivors import free_port

FAULTS = {"executor": 5, "worker": 4, "server": 2, "driver": 2, "nothing": 1}
"""What is killed in a step, and how often."""
_EXECUTOR, _WORKER = b"CoarseGrainedExecutorBackend", b"pyspark.daemon"
_STUCK_SECONDS = 400
_OF_SHIM = ("merge", "update", "delete", "insert")
"""Steps that only the shim offers."""
_STAGED_IN = ("staging", "imports", "compactions", "pins")
"""Folders of a store where tasks leave files."""
EXPIRY_SECONDS = 60
STAGING = {"staging_ttl_seconds": 3600.0}
EXPIRING = {"staging_ttl_seconds": 1.0}


def _children(pid: int) -> Iterator[int]:
    """Yield all processes under one."""
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from _children(int(child))


def _called(pid: int, name: bytes) -> bool:
    with suppress(OSError):
        return name in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class DriverProcess:
    """A driver with its executors."""

    def __init__(self, settings: dict[str, Any], log: Path) -> None:
        """Start it. Raises AssertionError if it ends before it is ready."""
        program = Path(__file__).with_name("kill_driver.py")
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(program), json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True,
            )  # fmt: skip
        self._replies: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._java: int = self.reply(_STUCK_SECONDS)["java"]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put("")

    def ask(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def dump_threads(self) -> None:
        """Let all Java machines write what their threads do, into the log and under ``work`` of the driver's folder."""
        for pid in (self._java, *(pid for pid in _children(self._java) if _called(pid, _EXECUTOR))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
        time.sleep(2)

    def reply(self, seconds: float) -> dict[str, Any]:
        """Return the next reply. Raises queue.Empty if none comes in time."""
        line = self._replies.get(timeout=seconds)
        assert line, f"the driver ended by itself:\n{self._log.read_text()[-3000:]}"
        return json.loads(line)

    def kill_executor(self, random: Random) -> bool:
        """Kill an executor; return whether there was one."""
        return self._kill_one(random, [pid for pid in _children(self._java) if _called(pid, _EXECUTOR)])

    def kill_worker(self, random: Random) -> bool:
        """Kill a process that runs Python for a task, whose attempt fails."""
        found = [pid for pid in _children(self._java) if _called(pid, _WORKER)]
        return self._kill_one(random, [pid for pid in found if not any(_children(pid))])

    @staticmethod
    def _kill_one(random: Random, found: Sequence[int]) -> bool:
        if found:
            _kill(random.choice(found))
        return bool(found)

    def kill(self) -> None:
        """Kill both processes of the driver; its executors notice by themselves, and may go on until then."""
        _kill(self._process.pid)
        _kill(self._java)
        self._process.wait()

    def close(self) -> None:
        """Kill all."""
        left = list(_children(self._process.pid))
        self.kill()
        for pid in left:
            _kill(pid)


@dataclass
class Campaign:
    """What it has done, for the report."""

    folder: Path
    random: Random
    jar: Path | None = None
    steps_done: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)
    """What became of steps that had no answer, or failed."""
    speculated: int = 0
    """Tasks that Spark started a second time because they were slow."""
    left_over: int = 0
    """Staged files that were there at the end, before their time was over."""
    _seconds: dict[str, float] = field(default_factory=dict)
    """How long each step took when it last ended."""

    def __enter__(self) -> Self:
        self._port = free_port()
        self._server = Server(self.folder / "store", self._port, **STAGING)
        self._db = nyala.connect(self._server.location)
        table = self._db.create_table("t", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=3)])
        self._db.create_table("copy", SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
        self._db.create_table("journal", JOURNAL, ["at", "id"], partition_by=[nyala.hash("id", buckets=2)])
        self._kept = set(self._db.tables())
        self.steps = Steps(self.random, self._db, self.folder, self._db.now())
        self.steps.rows = {key: key for key in range(0, 2_000, 2)}
        table.insert({"id": list(self.steps.rows), "v": list(self.steps.rows.values())})
        self._driver = self.start_driver()
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.close()
        self._db.close()
        self._server.__exit__()

    def run(self, seconds: float, only: Sequence[str] = ()) -> None:
        """Make steps at random, and kill in them; ``only`` these, if any are named."""
        end = time.monotonic() + seconds
        names = [name for name in only or self.steps.names if self.jar or name not in _OF_SHIM]
        while time.monotonic() < end:
            self.step(
                self.random.choice(names),
                *self.random.choices(list(FAULTS), list(FAULTS.values()), k=self.random.randint(1, 2)),
            )

    def step(self, name: str, *faults: str) -> None:
        """Make a step, in which these are killed one after the other.

        Raises:
            AssertionError: it is not done once and whole, or fails for a reason that nobody made.
        """
        step = self.steps.make(name)
        before = self._db.now()
        restarts, began = self.killed["server"], time.monotonic()
        print(f"{step.name} {tuple(faults)}", end=": ", flush=True)
        reply = self.carry_out(step, faults)
        found = self.steps.table_rows()
        if reply is None:
            is_done = found != self.steps.rows
            self.ended["done" if is_done else "not done"] += 1
            compare(f"{step.name}, whose driver was killed", found, step.after if is_done else self.steps.rows)
        elif "error" in reply:
            is_forgotten = step.ends_with_server and self.killed["server"] > restarts
            assert is_forgotten or NO_PYTHON in reply["error"], f"{step.name} {faults}: {reply['error']}"
            self.ended["forgotten by the server" if is_forgotten else "for want of Python"] += 1
            compare(f"{step.name}, which failed", found, self.steps.rows)
        else:
            compare(step.name, found, step.after)
        commits = self._db.commits("t", since=before).num_rows
        assert commits <= 1, f"{step.name} {faults}: {commits} commits"
        self.steps.rows = found
        self.speculated += (reply or {}).get("speculated", 0)
        if reply is not None and "result" in reply:
            step.check(reply["result"])
            self.steps_done[step.name] += 1
            self._seconds[step.name] = time.monotonic() - began
        for table in set(self._db.tables()) - self._kept:
            self._db.drop_table(table)
        print(f"{time.monotonic() - began:.1f} s, {len(found)} rows", flush=True)

    def finish(self) -> None:
        """Let the streams tell of all, and what is staged expire.

        Raises:
            AssertionError: changes or staged files are left.
        """
        for name in ("copy", "journal"):
            step = self.steps.stream(name)
            while "error" in (reply := self.carry_out(step, []) or {}):
                assert NO_PYTHON in reply["error"], reply["error"]
            step.check(None)
        self.expire()

    def expire(self) -> None:
        """Restart the server with a short life of what is staged. Raises AssertionError if any is left."""
        self.left_over = len(self._staged())
        self._server.kill()
        self._server = Server(self.folder / "store", self._port, **EXPIRING)
        end = time.monotonic() + EXPIRY_SECONDS
        while (left := self._staged()) and time.monotonic() < end:
            time.sleep(0.2)
        assert not left, f"staged files are left: {left}"

    def _staged(self) -> list[str]:
        files = (path for name in _STAGED_IN for path in (self.folder / "store" / name).rglob("*"))
        return [str(path) for path in files if path.is_file()]

    def report(self) -> str:
        done, killed, ended = (
            ", ".join(f"{count} {what}" for what, count in sorted(each.items())) or "none"
            for each in (self.steps_done, self.killed, self.ended)
        )
        return (
            f"steps: {done}\nkilled: {killed}; steps without an answer: {ended}; "
            f"{self.speculated} tasks ran twice; {self.left_over} staged files were left, and have expired\n"
            "0 lost, 0 doubled"
        )

    def start_driver(self) -> DriverProcess:
        scratch = self.folder / f"driver-{self.killed['driver']}"
        scratch.mkdir()
        settings = {"uri": self._server.location, "folder": str(self.folder), "scratch": str(scratch),
                    "store": str(self.folder / "store"), "jar": self.jar and str(self.jar)}  # fmt: skip
        return DriverProcess(settings, self.folder / "log")

    def carry_out(self, step: Step, faults: Sequence[str]) -> dict[str, Any] | None:
        """Return the driver's reply; None if the driver was killed, and another one has taken its place."""
        expected = self._seconds.get(step.name, 3.0)
        self._driver.ask(step.order)
        for fault in faults:
            with suppress(queue.Empty):
                return self._driver.reply(self.random.uniform(0.0, expected))
            if fault == "driver":
                self._driver.kill()
                self.killed["driver"] += 1
                self._driver = self.start_driver()
                return None
            self._hurt(fault)
        try:
            return self._driver.reply(_STUCK_SECONDS)
        except queue.Empty:
            self._driver.dump_threads()
            raise AssertionError(f"{step.name} {faults} has hung for {_STUCK_SECONDS} seconds") from None

    def _hurt(self, fault: str) -> None:
        if fault == "executor":
            self.killed[fault] += self._driver.kill_executor(self.random)
        elif fault == "worker":
            self.killed[fault] += self._driver.kill_worker(self.random)
        elif fault == "server":
            self._server.kill()
            time.sleep(self.random.uniform(0.0, 1.0))
            self._server = Server(self.folder / "store", self._port, **STAGING)
            self.killed[fault] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shim", type=Path, help="a jar; without one it is built")
    parser.add_argument("--only", default="", help="names of steps between commas, such as merge,stream")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nyala-kills-"))
    jar = asked.shim or nyala.spark.build_shim(folder)
    print(f"seed {asked.seed}, in {folder}", flush=True)
    with Campaign(folder, Random(asked.seed), jar) as campaign:
        campaign.run(asked.seconds, [name for name in asked.only.split(",") if name])
        campaign.finish()
    print(f"seed {asked.seed}: {campaign.report()}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
