"""Misbehaving clients beside an honest one: what they cost the server, and what they cost the honest one.

    python tests/attack/attack.py --seconds 5 --seed 0 [--only idle_readers]

For each attack a server is started, an honest client asks for rows, writes some and reads keys, first in peace, then
beside processes that do nothing but keep the processors busy, then while the attackers are at it, and then until it is
served as before. The table that comes out has the peak memory of the server above peace, the honest client's p99 in
peace, beside the busy processes and beside the attack, the requests that it lost, the processor time of the server and
of the attackers, and the time until it was served as in peace again.

Attackers would be on other machines; here they, and the busy processes, take what processor time nobody else wants.
Yet they move the server and the honest client between processors and empty the caches: what that costs is seen beside
the busy processes, what the server does for the attackers is the rest. Everything stays on this machine, and ends by
itself.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

MIB = 1 << 20
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.string()), ("price", pa.float64())])
ROWS = 2_000_000
"""Enough that a scan of all does not fit into what the transport holds for a client."""
HALF_OPEN = 500
PATIENCE_SECONDS = 90.0


@dataclass(frozen=True)
class Outcome:
    """What one attack did."""

    attack: str
    peak_mb: float
    """The server's most memory during the attack, above the most before it."""
    peace_p99_ms: float
    busy_p99_ms: float
    """Beside as many processes as there are processors, which never rest and ask the server for nothing."""
    beside_p99_ms: float
    ratio: float
    """The p99 beside the attack to that in peace."""
    server_cpu: float
    """Processors that the server used beside the attack, the honest requests included."""
    attacker_cpu: float
    failed: int
    """Requests of the honest client that failed beside the attack."""
    asked: int
    recovery_seconds: float
    """From the end of the attack until five requests in a row take no more than three times the p99 in peace."""


class Server:
    """A server process with a table ``homes``."""

    def __init__(self, python: str, directory: Path, row_count: int = ROWS, *more: str) -> None:
        command = [
            python,
            "-m",
            "nyala",
            "serve",
            "--data",
            str(directory),
            "--listen",
            "grpc://127.0.0.1:0",
            "--json",
            *more,
        ]
        here = directory.parent  # elsewhere than this checkout, whose code ``python -m`` would take
        self.process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout
        self.url = json.loads(self.process.stdout.readline())["location"]
        client = fl.connect(self.url)
        columns = [{"name": "id", "type": "int64", "nullable": False}, {"name": "city", "type": "string"}]
        body = {"name": "homes", "columns": [*columns, {"name": "price", "type": "double"}], "primary_key": ["id"]}
        list(client.do_action(fl.Action("create_table", json.dumps(body).encode())))
        for first in range(0, row_count, 100_000):
            put(client, rows(first, 100_000))

    @property
    def peak_bytes(self) -> int:
        """The most memory that it has had."""
        (line,) = (
            line
            for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
            if line.startswith("VmHWM:")
        )
        return int(line.split()[1]) * 1024

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it has had."""
        return cpu_seconds(self.process.pid)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Stop it; return the seconds that it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return time.monotonic() - began


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def rows(first: int, count: int) -> pa.RecordBatch:
    ids = range(first, first + count)
    return pa.record_batch(
        [pa.array(ids), pa.array([f"city {i % 7}" for i in ids]), pa.array(ids, pa.float64())], schema=SCHEMA
    )


def put(client: fl.FlightClient, batch: pa.RecordBatch, options: fl.FlightCallOptions | None = None) -> None:
    writer, _ = client.do_put(fl.FlightDescriptor.for_path("homes"), batch.schema, options)
    writer.write_batch(batch)
    writer.close()


class Honest:
    """Asks for one thing after the other, with a connection of its own."""

    def __init__(self, url: str, seed: int) -> None:
        self._client = fl.connect(url)
        self._random = random.Random(seed)
        self._timeout = fl.FlightCallOptions(timeout=20)
        self.failed = 0

    def ask(self) -> float:
        """Send one request; return the seconds until it was answered, with up to three tries."""
        what = self._random.choice([self._scan, self._describe, self._plan, self._write])
        began = time.monotonic()
        for left in (2, 1, 0):
            try:
                what(self._random.randrange(ROWS))
                break
            except (fl.FlightError, pa.ArrowException, OSError):
                if not left:
                    self.failed += 1
        return time.monotonic() - began

    def ask_for(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> list[float]:
        """Send requests for a time; return the latencies."""
        found: list[float] = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_over():
            found.append(self.ask())
            time.sleep(0.002)
        return found

    def _scan(self, key: int) -> None:
        ticket = {"table": "homes", "where": f"id = {key}"}
        self._client.do_get(fl.Ticket(json.dumps(ticket).encode()), self._timeout).read_all()

    def _describe(self, _: int) -> None:
        list(self._client.do_action(fl.Action("describe_table", b'{"table":"homes"}'), self._timeout))

    def _plan(self, key: int) -> None:
        command = json.dumps({"table": "homes", "where": f"id > {key}"})
        self._client.get_flight_info(fl.FlightDescriptor.for_command(command), self._timeout)

    def _write(self, key: int) -> None:
        put(self._client, rows(key, 10), self._timeout)


def at_99(latencies: list[float]) -> float:
    return sorted(latencies)[min(len(latencies) * 99 // 100, len(latencies) - 1)]


# The attackers: each runs in a process of its own until it is killed.


def forever(url: str, count: int, attack: Callable[[fl.FlightClient, int], Any]) -> None:
    """Let ``count`` threads, each with a connection of its own, do it over and over."""

    def run(number: int) -> None:
        client = fl.connect(url)
        while True:
            with suppress(fl.FlightError, pa.ArrowException, OSError):
                attack(client, number)
            time.sleep(0.01)

    for number in range(count):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    time.sleep(PATIENCE_SECONDS)


def bombs(url: str) -> None:
    """Ten columns of 200 MB of zeros, some 80 KB with zstd."""
    column = pa.repeat(pa.scalar(0, pa.int64()), 200 * MIB // 8)
    batch = pa.record_batch({f"c{number}": column for number in range(10)})

    def attack(client: fl.FlightClient, number: int) -> None:
        options = pa.ipc.IpcWriteOptions(compression=["zstd", "lz4"][number % 2])
        if number < 2:
            put(client, batch, fl.FlightCallOptions(write_options=options))
            return
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
        writer.begin(batch.schema, options=options)
        writer.write_batch(batch)
        writer.done_writing()
        reader.read_all()

    forever(url, 4, attack)


def giants(url: str) -> None:
    """Batches of 1 GB as they are: not compressed, so that the server has to receive them to see what they are."""
    column = pa.repeat(pa.scalar(0, pa.int64()), 100 * MIB // 8)
    batch = pa.record_batch({f"c{number}": column for number in range(10)})

    def attack(client: fl.FlightClient, number: int) -> None:
        put(client, batch)

    forever(url, 4, attack)


def filters(url: str) -> None:
    """Texts of 4 MB, of whose ends the clients never hear."""
    length = 4 * MIB - 10
    texts = ["id=1 or " * (length // 8) + "id=1", "id in (" + "1," * (length // 2), "(" * (length // 2) + "id=1"]

    def attack(client: fl.FlightClient, number: int) -> None:
        command = json.dumps({"table": "homes", "where": texts[number % 3]})
        client.get_flight_info(fl.FlightDescriptor.for_command(command), fl.FlightCallOptions(timeout=1))

    forever(url, 8, attack)


def plans(url: str) -> None:
    """Sixty at once, with lists that may be as long as this, and three seconds of patience."""
    where = "id in (" + ",".join(map(str, range(90_000))) + ")"
    command = json.dumps({"table": "homes", "where": where})
    descriptor = fl.FlightDescriptor.for_command(command)
    forever(url, 60, lambda client, _: client.get_flight_info(descriptor, fl.FlightCallOptions(timeout=3)))


def idle_readers(url: str) -> None:
    """Two hundred scans of which nobody reads a row."""
    forever(url, 200, lambda client, _: stay(client.do_get(fl.Ticket(b'{"table":"homes"}'))))


def idle_writers(url: str) -> None:
    """Two hundred write streams that bring nothing."""
    forever(url, 200, lambda client, _: stay(client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA)))


def stay(stream: Any) -> None:
    """Keep a stream open: nothing is read and nothing is sent."""
    time.sleep(PATIENCE_SECONDS)
    del stream


def staging(url: str) -> None:
    """Transactions that nobody commits."""
    batch = rows(0, 50_000)
    counter = iter(range(1 << 30))

    def attack(client: fl.FlightClient, _: int) -> None:
        stage = {"transaction": f"t{next(counter)}", "part": "p"}
        command = json.dumps({"table": "homes", "stage": stage})
        writer, _ = client.do_put(fl.FlightDescriptor.for_command(command), SCHEMA)
        writer.write_batch(batch)
        writer.write_metadata(json.dumps({"commit": True, "rows": batch.num_rows}).encode())
        writer.close()

    forever(url, 4, attack)


def leases(url: str) -> None:
    """Pins and imports for a day."""
    bodies = {"pin_snapshot": {"table": "homes", "ttl_seconds": 86400}}
    bodies["import_begin"] = bodies["pin_snapshot"]
    names = list(bodies)

    def attack(client: fl.FlightClient, number: int) -> None:
        name = names[number % 2]
        list(client.do_action(fl.Action(name, json.dumps(bodies[name]).encode())))

    forever(url, 4, attack)


ATTACKS: dict[str, Callable[[str], None]] = {
    each.__name__: each for each in (bombs, giants, filters, plans, idle_readers, idle_writers, staging, leases)
}


def busy(_: str) -> None:
    """What the attackers are compared with: a process that never rests, and asks the server for nothing."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        pass


@contextmanager
def attacking(name: str, url: str, count: int = 1) -> Iterator[Callable[[], float]]:
    """Let ``count`` processes attack while the body runs; it gets a function for the processor time that they had."""
    command = [sys.executable, __file__, "--attacker", name, url]
    attackers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield lambda: sum(cpu_seconds(attacker.pid) for attacker in attackers)
    finally:
        for attacker in attackers:
            attacker.kill()
            attacker.wait()


def run(
    name: str, python: str, seconds: float, seed: int, row_count: int = ROWS, patience: float = PATIENCE_SECONDS
) -> Outcome:
    """Run one attack against a new server; wait for its recovery for ``patience`` seconds at most."""
    with tempfile.TemporaryDirectory(prefix="nyala-attack-") as directory:
        server = Server(python, Path(directory) / "data", row_count)
        try:
            honest = Honest(server.url, seed)
            honest.ask_for(1)
            peace = honest.ask_for(seconds)
            with attacking(busy.__name__, server.url, os.cpu_count() or 1):
                honest.ask_for(1)
                beside_busy = honest.ask_for(seconds)
            before, honest.failed = server.peak_bytes, 0
            with attacking(name, server.url) as attacker_seconds:
                honest.ask_for(2)  # attackers have to start
                began, used = time.monotonic(), (server.cpu_seconds, attacker_seconds())
                beside = honest.ask_for(seconds)
                lasted = time.monotonic() - began
                used = server.cpu_seconds - used[0], attacker_seconds() - used[1]
                failed = honest.failed
            ended, in_a_row = time.monotonic(), 0
            while in_a_row < 5 and time.monotonic() - ended < patience:
                in_a_row = in_a_row + 1 if honest.ask() <= 3 * at_99(peace) else 0
            recovery = time.monotonic() - ended
            peak = (server.peak_bytes - before) / MIB
        finally:
            server.stop(signal.SIGKILL)
    return Outcome(
        attack=name,
        peak_mb=peak,
        peace_p99_ms=1000 * at_99(peace),
        busy_p99_ms=1000 * at_99(beside_busy),
        beside_p99_ms=1000 * at_99(beside),
        ratio=at_99(beside) / at_99(peace),
        server_cpu=used[0] / lasted,
        attacker_cpu=used[1] / lasted,
        failed=failed,
        asked=len(beside),
        recovery_seconds=recovery,
    )


def stop_with_half_open_streams(python: str, count: int = HALF_OPEN, drain_seconds: float = 10) -> float:
    """Return the seconds that SIGTERM takes with so many streams, half of them unread scans, half silent writers."""
    with tempfile.TemporaryDirectory(prefix="nyala-attack-") as directory:
        server = Server(python, Path(directory) / "data", 100_000, "--drain-seconds", str(drain_seconds))
        client = fl.connect(server.url)
        streams: list[Any] = []
        for number in range(count):
            with suppress(fl.FlightError):
                if number % 2:
                    streams.append(client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA))
                else:
                    keys = fl.FlightDescriptor.for_command(b'{"table":"homes"}')
                    writer, reader = client.do_exchange(keys)
                    writer.begin(SCHEMA)
                    streams.append((writer, reader))
        time.sleep(0.5)
        seconds = server.stop()
        return seconds


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=ATTACKS)
    parser.add_argument("--python", default=sys.executable, help="of the installation whose server is attacked")
    parser.add_argument("--attacker", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.attacker:
        os.nice(19)
        (ATTACKS | {busy.__name__: busy})[asked.attacker[0]](asked.attacker[1])
        return
    for name in [asked.only] if asked.only else ATTACKS:
        outcome = run(name, asked.python, asked.seconds, asked.seed)
        print(
            json.dumps(
                {key: round(value, 1) if isinstance(value, float) else value for key, value in asdict(outcome).items()}
            ),
            flush=True,
        )
    if not asked.only:
        print(
            json.dumps({"attack": "sigterm", "seconds": round(stop_with_half_open_streams(asked.python), 1)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
