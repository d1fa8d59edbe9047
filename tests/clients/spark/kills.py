"""Kill executors, Python workers, drivers and the server of Spark jobs at random, and compare all rows with a model.

    python tests/clients/spark/kills.py --seconds 300 --seed 0
    python tests/clients/spark/kills.py --steps merge,stream_copy,stream_journal --faults server,driver
    python tests/clients/spark/kills.py --bucket
    python tests/clients/spark/kills.py --planted doubled

A driver (`kill_driver.py`) with two executors changes, reads, copies and streams one table, step by step
(`kill_steps.py`); some of its tasks fail by themselves, and slow ones run twice (`kill_faults.py`). Each kind of step
comes once in a round, and meets each fault once in as many rounds as there are faults. Whatever is killed meanwhile,
each step is done once or, if it was the driver, perhaps not at all. In the end two streams have told of every change
once, and nothing that was staged is left. With a planted mistake it ends well if the mistake is noticed. With
``--bucket`` two processes share the store: one takes it over when the other is killed, or hands it over.
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa

import nyala
from tests.campaigns import options as drawn
from tests.clients.spark.kill_servers import BucketServer, DirectoryServer
from tests.clients.spark.kill_steps import SCHEMA, Step, Steps, compare
from tests.clients.spark.streaming import JOURNAL, has_no_python
from tests.doubles.processes import children_of, kill

FAULTS = (
    "executor", "worker", "server", "driver",
    "executor at staging", "server at staging", "driver at staging", "driver at commit", "nothing",
)  # fmt: skip
"""What is killed in a step, and when: at a random moment, as soon as something new is staged or committed."""
FAULTS_IN_BUCKET = (*FAULTS, "server at commit", "release", "release at staging")
PLANTED = {
    "doubled": [("append",)],
    "renumbered": [("plain_stream_journal", "driver at commit"), ("plain_stream_journal",)],
}
"""Mistakes (`kill_faults.py`) with the steps in which they show, and what is killed in these."""
_EXECUTOR, _WORKER = b"CoarseGrainedExecutorBackend", b"pyspark.daemon"
NO_SERVER = "cannot be reached"
"""What planning a query says at once, before anything is staged, while tasks and commits wait for the server."""
_STUCK_SECONDS = 400
_OF_SHIM = ("merge", "update", "delete", "insert", "append_sql", "read", "stream_copy", "stream_journal")
"""Steps that need the shim, or are about it."""
_STAGED_IN = ("staging", "imports", "compactions", "pins")
"""Folders of a store where tasks leave files."""
EXPIRY_SECONDS = 60
_LOOK_SECONDS = 0.02
STAGING = {"staging_ttl_seconds": 3600.0}
EXPIRING = {"staging_ttl_seconds": 1.0}


def _called(pid: int, name: bytes) -> bool:
    with suppress(OSError):
        return name in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


class DriverProcess:
    """A driver with its executors."""

    def __init__(self, settings: dict[str, Any], log: Path) -> None:
        """Start it. Raises AssertionError if it ends before it is ready."""
        program = Path(__file__).with_name("kill_driver.py")
        places = str(program.parents[3]), os.environ.get("PYTHONPATH")  # Spark's processes import helpers
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, str(program), json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, start_new_session=True,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, places))},
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
        for pid in (self._java, *(pid for pid in children_of(self._java) if _called(pid, _EXECUTOR))):
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
        return self._kill_one(random, [pid for pid in children_of(self._java) if _called(pid, _EXECUTOR)])

    def kill_worker(self, random: Random) -> bool:
        """Kill a process that runs Python for a task, whose attempt fails."""
        found = [pid for pid in children_of(self._java) if _called(pid, _WORKER)]
        return self._kill_one(random, [pid for pid in found if not any(children_of(pid))])

    @staticmethod
    def _kill_one(random: Random, found: Sequence[int]) -> bool:
        if found:
            kill(random.choice(found))
        return bool(found)

    def kill(self) -> None:
        """Kill both processes of the driver; its executors notice by themselves, and may go on until then."""
        kill(self._process.pid)
        kill(self._java)
        self._process.wait()

    def close(self) -> None:
        """Kill all."""
        left = list(children_of(self._process.pid))
        self.kill()
        for pid in left:
            kill(pid)


@dataclass
class Campaign:
    """What it has done, for the report."""

    folder: Path
    random: Random
    jar: Path | None = None
    in_bucket: bool = False
    steps_done: Counter[str] = field(default_factory=Counter)
    killed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """What was killed in which step, before it was done."""
    ended: Counter[str] = field(default_factory=Counter)
    """What became of steps that had no answer, or failed."""
    speculated: int = 0
    """Tasks that Spark started a second time because they were slow."""
    repeated: int = 0
    """Micro-batches that came again after their commit."""
    left_over: int = 0
    """Staged files that were there at the end, before their time was over."""
    _seconds: dict[str, float] = field(default_factory=dict)
    """The shortest time that each step took."""
    _decks: dict[str, list[str]] = field(default_factory=dict)
    """The faults that each step has still to meet."""
    _drivers: int = 0
    _before: int = 0
    """The moment when the step began."""
    _noted_before: int = -1
    _staged_before: set[str] = field(default_factory=set)

    @property
    def faults(self) -> Sequence[str]:
        """What may be killed."""
        return FAULTS_IN_BUCKET if self.in_bucket else FAULTS

    def __enter__(self) -> Self:
        self._server = (BucketServer if self.in_bucket else DirectoryServer)(self.folder, STAGING)
        self._db = nyala.connect(self._server.location)
        table = self._create("t", SCHEMA, ["id"], 3)
        self._create("log", SCHEMA, ["id"], unique_key=False)
        self._create("copy", SCHEMA, ["id"])
        self._create("journal", JOURNAL, ["at", "id"])
        self._kept = set(self._db.tables())
        self.steps = Steps(self.random, self._db, self.folder, self._db.now())
        self.steps.tables["t"] = {key: key for key in range(0, 2_000, 2)}
        table.insert({"id": list(self.steps.rows), "v": list(self.steps.rows.values())})
        self._driver = self.start_driver()
        return self

    def _create(self, name: str, schema: pa.Schema, key: list[str], buckets: int = 2, **more: Any) -> nyala.Table:
        levels, columns = [nyala.hash("id", buckets=buckets)], drawn.columns(schema)
        return self._db.create_table(name, schema, key, levels, columns, **more, **drawn.table())

    def __exit__(self, *_: object) -> None:
        self._driver.close()
        self._db.close()
        self._server.close()

    def run(self, seconds: float, only: Sequence[str] = (), faults: Sequence[str] = ()) -> None:
        """Make rounds of all steps, or ``only`` of these, each in an order of its own, and kill in each."""
        end = time.monotonic() + seconds
        names = [name for name in only or self.steps.names if self.jar or name not in _OF_SHIM]
        while True:
            self.random.shuffle(names)
            for name in names:
                if time.monotonic() > end:
                    return
                self.step(name, *(self.deal(name, faults or self.faults) for _ in range(self.random.choice((1, 1, 2)))))

    def deal(self, name: str, faults: Sequence[str] = FAULTS) -> str:
        """Return a fault: each comes once before one comes again in the same step."""
        deck = self._decks.setdefault(name, [])
        if not deck:
            deck += self.random.sample(faults, len(faults))
        return deck.pop()

    def step(self, name: str, *faults: str) -> None:
        """Make a step, in which these are killed one after the other.

        Raises:
            AssertionError: it is not done once and whole, or fails for a reason that nobody made.
        """
        step = self.steps.make(name)
        rows_before = self.steps.tables[step.table]
        self._before, self._staged_before = self._db.now(), set(self._staged())
        holders, began = self._holders(), time.monotonic()
        print(f"{step.name} {faults}", end=": ", flush=True)
        reply = self.carry_out(step, faults)
        found = self.steps.table_rows(step.table)
        if reply is None:
            is_done = found != rows_before
            self.ended["done" if is_done else "not done"] += 1
            compare(f"{step.name}, whose driver was killed", found, step.after if is_done else rows_before)
        elif "error" in reply:
            why = self._excuse(step, reply["error"], self._holders() > holders)
            assert why, f"{step.name} {faults}: {reply['error']}"
            self.ended[why] += 1
            compare(f"{step.name}, which failed", found, rows_before)
        else:
            compare(step.name, found, step.after)
        commits = self._db.commits(step.table, since=self._before).num_rows
        assert commits <= 1, f"{step.name} {faults}: {commits} commits"
        self.steps.tables[step.table] = found
        self.speculated += (reply or {}).get("speculated", 0)
        if reply is not None and "result" in reply:
            step.check(reply["result"])
            self.steps_done[step.name] += 1
            seconds = time.monotonic() - began
            self._seconds[step.name] = min(seconds, self._seconds.get(step.name, seconds))
        for table in set(self._db.tables()) - self._kept:
            self._db.drop_table(table)
        print(f"{time.monotonic() - began:.1f} s, {len(found)} rows", flush=True)

    def _excuse(self, step: Step, error: str, is_restarted: bool) -> str:
        """Return why a step may have failed; nothing if it may not."""
        if has_no_python(error):
            return "for want of Python"
        if is_restarted and NO_SERVER in error and not set(self._staged()) - self._staged_before:
            return "planned without a server"
        return "forgotten by the server" if is_restarted and step.ends_with_server else ""

    def plant(self, mistake: str) -> None:
        """Make the steps in which a planted mistake shows.

        Raises:
            AssertionError: it has been noticed.
        """
        for name, *faults in PLANTED[mistake]:
            self._ask({"do": "plant", "mistake": mistake})
            self.step(name, *faults)

    def _ask(self, order: dict[str, Any]) -> None:
        self._driver.ask(order)
        assert "result" in self._driver.reply(_STUCK_SECONDS)

    def _holders(self) -> int:
        """Return how often another process has had the store."""
        return self.count("server") + self.count("release")

    def count(self, killed: str) -> int:
        """Return how often one was killed."""
        return sum(count for (_, fault), count in self.killed.items() if fault.split()[0] == killed)

    def finish(self) -> None:
        """Let the streams tell of all, and what is staged expire.

        Raises:
            AssertionError: changes or staged files are left.
        """
        for name in ("copy", "journal"):
            step = self.steps.stream(name, "nyala_plain")
            while "error" in (reply := self.carry_out(step, []) or {}):
                assert has_no_python(reply["error"]), reply["error"]
            step.check(None)
        for name, rows in self.steps.tables.items():
            compare(name, self.steps.table_rows(name), rows)
        self.expire()

    def expire(self) -> None:
        """Restart the server with a short life of what is staged. Raises AssertionError if any is left."""
        self.left_over = len(self._staged())
        self._server.close()
        self._server.start(EXPIRING)
        end = time.monotonic() + EXPIRY_SECONDS
        while (left := self._staged()) and time.monotonic() < end:
            time.sleep(0.2)
        assert not left, f"staged files are left: {left}"
        self._server.close()
        self._server.start(STAGING)

    def _staged(self) -> list[str]:
        files = (path for name in _STAGED_IN for path in (self._server.store / name).rglob("*"))
        return [str(path) for path in files if path.is_file()]

    def report(self) -> str:
        faults = [fault for fault in self.faults if fault != "nothing"]
        names = sorted({*self.steps_done, *(step for step, _ in self.killed)})
        table = [("step", "done", *faults)] + [
            (name, str(self.steps_done[name]), *(str(self.killed[name, fault] or "") for fault in faults))
            for name in names
        ]
        total = ("all", str(self.steps_done.total()),
                 *(str(sum(self.killed[name, fault] for name in names)) for fault in faults))  # fmt: skip
        ended = ", ".join(f"{count} {what}" for what, count in sorted(self.ended.items())) or "none"
        return "\n".join(
            [
                *(" | ".join(row) for row in [*table, total]),
                f"steps without an answer: {ended}; {self.speculated} tasks ran twice because they were slow; "
                f"{self.repeated} micro-batches came again after their commit; "
                f"{self.left_over} staged files were left, and have expired",
                "0 lost, 0 doubled",
            ]
        )

    def start_driver(self) -> DriverProcess:
        self._drivers += 1
        scratch = self.folder / f"driver-{self._drivers}"
        scratch.mkdir()
        settings = {"uri": self._server.location, "folder": str(self.folder), "scratch": str(scratch),
                    "store": self._server.directory, "jar": self.jar and str(self.jar)}  # fmt: skip
        return DriverProcess(settings, self.folder / "log")

    def carry_out(self, step: Step, faults: Sequence[str]) -> dict[str, Any] | None:
        """Return the driver's reply; None if the driver was killed, and another one has taken its place."""
        if step.order["do"] == "stream":
            self._noted_before = max(self._noted(step.order["name"]), default=-1)
        self._driver.ask(step.order)
        for fault in faults:
            with suppress(queue.Empty):
                return self._await(step, fault.partition(" at ")[2])
            self.killed[step.name, fault] += self._hurt(step, fault.split()[0])
            if fault.startswith("driver"):
                return None
        try:
            return self._driver.reply(_STUCK_SECONDS)
        except queue.Empty:
            self._driver.dump_threads()
            raise AssertionError(f"{step.name} {faults} has hung for {_STUCK_SECONDS} seconds") from None

    def _await(self, step: Step, moment: str) -> dict[str, Any]:
        """Return the reply if it comes before the moment for a fault. Raises queue.Empty if the moment comes first."""
        if not moment:
            return self._driver.reply(self.random.uniform(0.0, self._seconds.get(step.name, 3.0)))
        staged = set(self._staged())
        end = time.monotonic() + _STUCK_SECONDS
        while time.monotonic() < end:
            with suppress(queue.Empty):
                return self._driver.reply(_LOOK_SECONDS)
            if moment == "staging" and set(self._staged()) - staged:
                break
            is_committed = step.commits_to and self._db.commits(step.commits_to, since=self._before).num_rows
            if moment == "commit" and is_committed:
                break
        raise queue.Empty

    def _hurt(self, step: Step, killed: str) -> bool:
        """Kill one; return whether there was one."""
        if killed == "executor":
            return self._driver.kill_executor(self.random)
        if killed == "worker":
            return self._driver.kill_worker(self.random)
        if killed == "server":
            self._server.kill()
            time.sleep(self.random.uniform(0.0, 1.0))
            self._server.start(STAGING)
        elif killed == "release":
            assert isinstance(self._server, BucketServer)
            self._server.release()
        elif killed == "driver":
            self._driver.kill()
            if step.order["do"] == "stream":
                self.repeated += self._comes_again(step.order["name"])
            self._driver = self.start_driver()
        return killed != "nothing"

    def _comes_again(self, name: str) -> bool:
        """Whether the last micro-batch of a stream is committed, and Spark has no note of that."""
        noted = sum(batch > self._noted_before for batch in self._noted(name))
        return self._db.commits(name, since=self._before).num_rows > noted

    def _noted(self, name: str) -> list[int]:
        """Return the micro-batches of a stream of whose commits Spark has a note."""
        return [int(note.name) for note in (self.folder / name / "commits").glob("[0-9]*")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shim", type=Path, help="a jar; without one it is built")
    parser.add_argument("--steps", default="", help="names of steps between commas, such as merge,stream_copy")
    parser.add_argument("--faults", default="", help="what is killed, between commas, such as server,driver at commit")
    parser.add_argument(
        "--bucket", action="store_true", help="of a store in a bucket, which another process takes over"
    )
    parser.add_argument("--planted", choices=PLANTED, help="make a mistake, which must be noticed")
    drawn.add_to(parser)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nyala-kills-"))
    jar = asked.shim or nyala.spark.build_shim(folder)
    print(f"seed {asked.seed}, in {folder}", flush=True)
    swarm = drawn.swarm_of(drawn.IN_BUCKET, asked)
    with swarm.round(0), Campaign(folder, Random(asked.seed), jar, asked.bucket) as campaign:
        if asked.planted:
            try:
                campaign.plant(asked.planted)
            except AssertionError as error:
                print(f"noticed: {error}")
            else:
                sys.exit(f"the planted mistake {asked.planted} has not been noticed")
        else:
            steps, faults = ([name for name in each.split(",") if name] for each in (asked.steps, asked.faults))
            campaign.run(asked.seconds, steps, faults)
            campaign.finish()
            print(f"seed {asked.seed}: {campaign.report()}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
