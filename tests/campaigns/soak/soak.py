"""A server under sixteen mixed clients for an hour: its memory, files, threads, disk and latencies must stay flat.

    python tests/campaigns/soak/soak.py --minutes 60 --clients 16 --seed 0 --out build/soak

The server has TLS, tokens, grants, metrics over HTTP, and maintenance on. The clients load, write, delete, read, scan,
aggregate, follow changes, run transactions, connect anew, and misbehave, over a fixed range of keys: how many rows live
is bounded, and old versions pass out of a short history. So whatever grows is a leak. Each client checks what it sees,
writers know which rows must be there in the end, and the store is verified offline. ``verdict`` says what is flat.
"""

from __future__ import annotations

import argparse
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import nyala
from nyala.flight_server.security.token_file import create_token
from tests.campaigns import options as drawn
from tests.campaigns.soak.clients import Access
from tests.campaigns.soak.rows import KEY, PLAIN, SCHEMA, TABLE
from tests.campaigns.soak.samples import Sample, Window, sample, trends, windows
from tests.campaigns.soak.verdict import Trend
from tests.doubles.certificates import Authority

MIB = 1 << 20
OPTIONS = {
    "flush_bytes": 512 << 10,
    "flush_deltas_bytes": 256 << 10,
    "history_gc_bytes": 256 << 10,
    "wal_segment_bytes": MIB,
    "page_cache_bytes": 16 * MIB,
    "scan_buffer_bytes": 16 * MIB,
    "disk_reserve_bytes": 0,
}
"""Small, so that whatever happens when something is full happens many times."""
_FLAT_LATER = {
    "budget_bytes",
    "page_cache_bytes",
    "scan_buffer_bytes",
    "key_index_bytes",
    "memory_bytes",
    "reads_bytes",
}
_SIZES_OF_FILES = {
    "direct_load_bytes",
    "direct_load_unsorted_bytes",
    "compaction_bytes",
    "redo_files_count",
    "redo_share",
}
FEATURES = drawn.Features(drawn.LOADS, without={*OPTIONS, *_FLAT_LATER, *_SIZES_OF_FILES}, allowed={"durability"})
"""Caches that are not full when the soak ends, and small files that are merged later, would look like leaks."""
SERVE = ("-m", "nyala")
_PROCESSES = 4
"""Of the clients: more would use the memory and the time that their server needs."""
_SAMPLES = 720
_HISTORY_SHARE = 60
"""The table keeps a history of this part of the soak, and of ten seconds at least."""
_PATIENCE_SECONDS = 120.0
_STOP_SECONDS = 30.0
_FIRST_LINES = 20


class Server:
    """A server process with a table, and what clients need to reach it. A ``with`` block ends in its death."""

    def __init__(self, folder: Path, history_seconds: int, program: tuple[str, ...] = SERVE) -> None:
        authority = Authority(folder)
        pair, tokens = authority.server(), folder / "tokens.json"
        root, worker, reader = (
            create_token(tokens, user, roles)[0]
            for user, roles in (("root", ("admin",)), ("worker", ()), ("reader", ()))
        )
        self.data, self.log = folder / "data", folder / "server.log"
        places = {"data": self.data, "tls-cert": pair.certificate, "tls-key": pair.key, "tokens": tokens}
        command = [sys.executable, *program, "serve", "--listen", "grpc://127.0.0.1:0", "--http-port", "0", "--json"]
        command += [part for name, path in places.items() for part in (f"--{name}", str(path))]
        command += drawn.flags(**OPTIONS)
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self.process.stdout
        said = self.process.stdout.readline()
        assert said, f"the server did not start: {self.log.read_text()}"
        announced = json.loads(said)
        self._http, self._root = announced["http"], root
        self._trusting = ssl.create_default_context(cafile=str(authority.roots))
        self.access = Access(announced["location"], str(authority.roots), worker, reader)
        with self.access.connect(root) as database:
            parts = [nyala.hash("number", buckets=2)]
            options = drawn.table(history_max_age_seconds=history_seconds)
            database.create_table(TABLE, SCHEMA, KEY, parts, drawn.columns(SCHEMA), **options)
            database.grant(["read", "insert", "update", "delete"], on=TABLE, to="worker")
            database.grant("read", on=TABLE, to="reader", columns=PLAIN)

    def sample(self) -> Sample:
        """Measure it, and read its metrics as a monitoring system does."""
        headers = {"Authorization": f"Bearer {self._root}"}
        request = urllib.request.Request(f"{self._http.rstrip('/')}/metrics", headers=headers)
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS, context=self._trusting) as answer:
            assert b"process_open_fds" in answer.read(), "the metrics lack what is asked for"
        return sample(self.process.pid, self.data)

    def row_count(self) -> int:
        """Return the number of live rows."""
        with self.access.connect(self._root) as database:
            return database.table(TABLE).count()

    def stop(self) -> int:
        """Stop it; return its exit code."""
        self.process.terminate()
        return self.process.wait(_STOP_SECONDS)

    def complaints(self) -> list[str]:
        """Return what it logged as an error, and whatever is not its log."""
        found = []
        for line in self.log.read_text().splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                said = {"level": "none"}
            if said["level"] not in ("debug", "info", "warning") and not _is_of_transport(line):
                found.append(line)
        return found

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def _is_of_transport(line: str) -> bool:
    """Return whether gRPC tells of a connection that sent no TLS: it does so on standard error, at the level INFO."""
    return "Handshake failed" in line or "absl::InitializeLog()" in line


class ClientProcess:
    """A process with some of the clients, and all that it has told."""

    def __init__(self, access: Access, numbers: list[int], seed: int, log: Path) -> None:
        """Start it; ``log`` is for its standard error."""
        program = Path(__file__).with_name("client_process.py")
        self._log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(program)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._ask(json.dumps({"access": asdict(access), "clients": numbers, "seed": seed}))
        self.latencies: list[tuple[str, float, float]] = []
        self.notes: Counter[str] = Counter()
        self.failures: dict[str, str] = {}
        self.checked: dict[str, int] | None = None
        self._reached = {state: threading.Event() for state in ("ready", "ended")}
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def begin(self) -> None:
        """Let the clients begin, once they are ready."""
        self._reached["ready"].wait(_PATIENCE_SECONDS)
        self._ask("go")

    def end(self) -> None:
        """Let the clients end, and wait for it."""
        self._ask("stop")
        self._reached["ended"].wait(_PATIENCE_SECONDS)

    def check(self) -> None:
        """Let the clients compare, and wait for the process."""
        self._ask("check")
        self._listening.join(_PATIENCE_SECONDS)
        code = self.process.wait(_PATIENCE_SECONDS)
        if code or self.checked is None:
            self.failures.setdefault("a process of clients", f"it ended with {code}: {self._log.read_text()[-2_000:]}")

    def _ask(self, line: str) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.failures.setdefault("a process of clients", "it ended before its time")

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            self.latencies += map(tuple, said.get("latencies", ()))
            self.notes.update(said.get("notes", ()))
            self.failures |= said.get("failures", {})
            self.checked = said.get("checked", self.checked)
            if "state" in said:
                self._reached[said["state"]].set()
        for each in self._reached.values():
            each.set()


@dataclass
class Outcome:
    """What a soak has found."""

    seed: int
    clients: int
    seconds: float
    samples: list[Sample]
    """``at`` in seconds from the beginning."""
    latencies: dict[str, list[Window]]
    requests: int
    rows_checked: int
    processor_share: float
    """Processors that the server used."""
    trends: list[Trend]
    notes: dict[str, int]
    failures: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all is flat, and nothing failed."""
        return not self.failures and all(each.is_flat for each in self.trends)

    def lines(self) -> Iterator[str]:
        """Yield the verdict as text."""
        yield (
            f"seed {self.seed}: {self.clients} clients sent {self.requests:,} requests in {self.seconds:.0f} s, "
            f"{self.rows_checked:,} rows compared at the end; the server used {self.processor_share:.2f} processors"
        )
        half = len(self.samples) // 2
        loads = [
            statistics.fmean(each.load for each in some or self.samples)
            for some in (self.samples[:half], self.samples[half:])
        ]
        yield f"the load average of the machine was {loads[0]:.1f} in the first half, {loads[1]:.1f} in the second"
        yield from map(str, self.trends)
        yield from (f"{count} times: {note}" for note, count in self.notes.items())
        yield from (f"FAILED {failure}" for failure in self.failures)
        yield "GOOD" if self.is_good else "BAD"


def soak(seconds: float, clients: int, seed: int, program: tuple[str, ...] = SERVE) -> Outcome:
    """Run a soak; ``program`` is the server's, as arguments of Python."""
    history = max(round(seconds / _HISTORY_SHARE), 10)
    with tempfile.TemporaryDirectory(prefix="nyala-soak-") as folder:
        with Server(Path(folder), history, program) as server:
            count = min(_PROCESSES, clients)
            numbers = [list(range(first, clients, count)) for first in range(count)]
            with _killed_at_the_end(
                [ClientProcess(server.access, each, seed, Path(folder) / f"clients{each[0]}.log") for each in numbers]
            ) as processes:
                for each in processes:
                    each.begin()
                began, samples = time.monotonic(), [server.sample()]
                failures = _watch(server, processes, began + seconds, max(seconds / _SAMPLES, 0.25), samples)
                ended = time.monotonic()
                for step in (ClientProcess.end, ClientProcess.check):
                    for each in processes:
                        step(each)
            failures += _failures(server, processes)
        verified = subprocess.run(
            [sys.executable, "-m", "nyala", "verify", str(server.data), *drawn.key_words()], capture_output=True
        )
        if verified.returncode:
            failures.append(f"the store is damaged: {verified.stdout.decode()}")
    found = [each for process in processes for each in process.latencies]
    parts = windows(began, ended, found)
    checked = [count for process in processes for count in (process.checked or {}).values()]
    return Outcome(
        seed=seed,
        clients=clients,
        seconds=ended - began,
        samples=[Sample(**asdict(each) | {"at": each.at - began}) for each in samples],
        latencies=parts,
        requests=len(found),
        rows_checked=sum(checked),
        processor_share=(samples[-1].processor_seconds - samples[0].processor_seconds) / (ended - began),
        trends=trends(samples, parts),
        notes=dict(sum((process.notes for process in processes), Counter())),
        failures=failures,
    )


def _watch(
    server: Server, processes: list[ClientProcess], until: float, pause: float, samples: list[Sample]
) -> list[str]:
    """Take samples until the time is over, or something fails; return what keeps them from being taken."""
    while (at := time.monotonic()) < until and not any(each.failures for each in processes):
        try:
            samples.append(server.sample())
        except OSError as error:
            return [f"the server could not be measured: {error}"]
        time.sleep(max(at + pause - time.monotonic(), 0))
    return []


@contextmanager
def _killed_at_the_end(processes: list[ClientProcess]) -> Iterator[list[ClientProcess]]:
    try:
        yield processes
    finally:
        for each in processes:
            each.process.kill()
            each.process.wait()


def _failures(server: Server, processes: list[ClientProcess]) -> list[str]:
    """Stop the server; return all that went wrong."""
    failures = [f"{name}: {why}" for process in processes for name, why in process.failures.items()]
    if not failures and server.process.poll() is None:
        kept = sum(
            count
            for process in processes
            for name, count in (process.checked or {}).items()
            if any(kind in name for kind in ("Loader", "SmallWriter", "Transactor"))
        )
        if (count := server.row_count()) != kept:
            failures.append(f"the table has {count:,} rows; the writers wrote {kept:,}")
    if server.process.poll() is not None:
        failures.append(f"the server died with {server.process.returncode}")
    elif code := server.stop():
        failures.append(f"the server ended with {code}")
    return [*failures, *(f"the server logged: {line}" for line in server.complaints()[:_FIRST_LINES])]


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="a folder for the figures and the plot")
    drawn.add_to(parser)
    asked = parser.parse_args()
    with drawn.swarm_of(FEATURES, asked).round(0):
        outcome = soak(60 * asked.minutes, asked.clients, asked.seed)
        print("\n".join(outcome.lines()), flush=True)

        from tests.campaigns.soak.plot import keep

        keep(outcome, asked.out)
        sys.exit(not outcome.is_good)


if __name__ == "__main__":
    main()
