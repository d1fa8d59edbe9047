"""Misbehaving clients beside an honest one: what they cost the server, and what they cost the honest one.

    python tests/campaigns/attack/attack.py --seconds 5 --seed 0 [--only idle_readers]

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

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa
import pyarrow.flight as fl

from tests.campaigns.attack.attackers import ATTACKS as CALLS
from tests.campaigns.attack.attackers import MIB, PATIENCE_SECONDS, SCHEMA, put, rows
from tests.campaigns.attack.crowds import CROWDS
from tests.campaigns.attack.session_attackers import SESSION_ATTACKS, Session, sessions
from tests.campaigns.attack.shown import VARIABLE, connect

ATTACKS = CALLS | SESSION_ATTACKS | CROWDS
ROWS = 2_000_000
"""Enough that a scan of all does not fit into what the transport holds for a client."""
HALF_OPEN = 500
FEW = 16
"""Threads and files that may be left: the transport keeps some for the next calls."""
LET_GO_SECONDS = 15.0
THREADS_MAX = 600
"""A server with more is killed: the attack would take the machine."""


@dataclass(frozen=True)
class Outcome:
    """What one attack did."""

    attack: str
    peak_mb: float
    """The server's most memory during the attack, above the most before it."""
    most_threads: int
    """The most threads of the server during the attack."""
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
    threads_left: int
    """Threads of the server that are more than before the attack, a while after it."""
    files_left: int
    """The same of its open files and connections."""
    recovery_seconds: float
    """From the end of the attack until five requests in a row take no more than three times the p99 in peace."""


class Server:
    """A server process with a table ``homes``."""

    def __init__(self, python: str, directory: Path, row_count: int = ROWS, *more: str) -> None:
        here = directory.parent  # elsewhere than this checkout, whose code ``python -m`` would take
        tokens = ("--tokens", str(here / "tokens.json"))
        nyala = [python, "-m", "nyala"]

        def token(*whose: str) -> str:
            made = subprocess.run(
                [*nyala, "token", "create", *whose, *tokens], cwd=here, check=True, capture_output=True
            )
            return made.stdout.decode().strip()

        self.token, self.users_token = token("root", "--role", "admin"), token("mallory")
        listen = ("--listen", "grpc://127.0.0.1:0", "--set", "handshake_seconds=60", "--json")
        command = [*nyala, "serve", "--data", str(directory), *listen, *tokens, *more]
        self.process = subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._watch, daemon=True).start()
        assert self.process.stdout
        self.url = json.loads(self.process.stdout.readline())["location"]
        client = connect(self.url, self.token)
        columns = [{"name": "id", "type": "int64", "nullable": False}, {"name": "city", "type": "string"}]
        body = {"name": "homes", "columns": [*columns, {"name": "price", "type": "double"}], "primary_key": ["id"]}
        list(client.do_action(fl.Action("create_table", json.dumps(body).encode())))
        granted = {"privileges": ["read", "insert", "update", "delete", "alter"], "table": "*", "user": "mallory"}
        list(client.do_action(fl.Action("grant", json.dumps(granted).encode())))
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

    @property
    def held(self) -> tuple[int, int]:
        """Its threads, and its open files."""
        return tuple(len(os.listdir(f"/proc/{self.process.pid}/{each}")) for each in ("task", "fd"))  # pyright: ignore

    def _watch(self) -> None:
        with suppress(OSError):  # it has ended
            while self.held[0] <= THREADS_MAX:
                time.sleep(0.02)
            self.process.kill()

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


class Honest:
    """Asks for one thing after the other, with a connection of its own."""

    def __init__(self, server: Server, seed: int) -> None:
        self._client = connect(server.url, server.token)
        self._random = random.Random(seed)
        self._session: Session | None = None
        self._timeout = fl.FlightCallOptions(timeout=20)
        self.failed = 0

    def ask(self) -> float:
        """Send one request; return the seconds until it was answered, with up to three tries."""
        what = self._random.choice([self._scan, self._describe, self._plan, self._write, self._get])
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

    def _get(self, key: int) -> None:
        session, self._session = self._session or Session(self._client), None
        session.send({"get": "homes"}, {"key": [key]})
        said = session.answer()
        assert "row" in said or said["error"]["code"] == "UNAVAILABLE", said
        if "row" not in said:
            raise fl.FlightUnavailableError("busy")
        self._session = session


def at_99(latencies: list[float]) -> float:
    return sorted(latencies)[min(len(latencies) * 99 // 100, len(latencies) - 1)]


def busy(_: str) -> None:
    """What the attackers are compared with: a process that never rests, and asks the server for nothing."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        pass


@contextmanager
def attacking(name: str, server: Server, count: int = 1) -> Iterator[Callable[[], float]]:
    """Let ``count`` processes attack while the body runs; it gets a function for the processor time that they had."""
    command = [sys.executable, __file__, "--attacker", name, server.url]
    environment = os.environ | {VARIABLE: server.users_token}
    attackers = [
        subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        for _ in range(count)
    ]
    try:
        yield lambda: sum(cpu_seconds(attacker.pid) for attacker in attackers)
    finally:
        for attacker in attackers:
            os.killpg(attacker.pid, signal.SIGKILL)  # and what it has started
            attacker.wait()


def run(
    name: str, python: str, seconds: float, seed: int, row_count: int = ROWS, patience: float = PATIENCE_SECONDS
) -> Outcome:
    """Run one attack against a new server; wait for its recovery for ``patience`` seconds at most."""
    with tempfile.TemporaryDirectory(prefix="nyala-attack-") as directory:
        server = Server(python, Path(directory) / "data", row_count)
        try:
            honest = Honest(server, seed)
            honest.ask_for(1)
            peace = honest.ask_for(seconds)
            with attacking(busy.__name__, server, os.cpu_count() or 1):
                honest.ask_for(1)
                beside_busy = honest.ask_for(seconds)
            before, held, honest.failed = server.peak_bytes, server.held, 0
            with attacking(name, server) as attacker_seconds:
                honest.ask_for(2)  # attackers have to start
                began, used = time.monotonic(), (server.cpu_seconds, attacker_seconds())
                most_threads = 0

                def look() -> bool:
                    nonlocal most_threads
                    most_threads = max(most_threads, server.held[0])
                    return False

                beside = honest.ask_for(seconds, look)
                lasted = time.monotonic() - began
                used = server.cpu_seconds - used[0], attacker_seconds() - used[1]
                failed = honest.failed
            ended, in_a_row = time.monotonic(), 0
            while in_a_row < 5 and time.monotonic() - ended < patience:
                in_a_row = in_a_row + 1 if honest.ask() <= 3 * at_99(peace) else 0
            recovery = time.monotonic() - ended
            peak = (server.peak_bytes - before) / MIB
            threads_left, files_left = _left(server, held)
        finally:
            server.stop(signal.SIGKILL)
    return Outcome(
        attack=name,
        peak_mb=peak,
        most_threads=most_threads,
        peace_p99_ms=1000 * at_99(peace),
        busy_p99_ms=1000 * at_99(beside_busy),
        beside_p99_ms=1000 * at_99(beside),
        ratio=at_99(beside) / at_99(peace),
        server_cpu=used[0] / lasted,
        attacker_cpu=used[1] / lasted,
        failed=failed,
        asked=len(beside),
        threads_left=threads_left,
        files_left=files_left,
        recovery_seconds=recovery,
    )


def _left(server: Server, held: tuple[int, int]) -> tuple[int, int]:
    """Wait until the server holds no more threads and files than it did, give or take; return how many more it does."""
    deadline = time.monotonic() + LET_GO_SECONDS
    while True:
        left = [now - before for now, before in zip(server.held, held, strict=True)]
        if max(left) <= FEW or time.monotonic() > deadline:
            return left[0], left[1]
        time.sleep(0.1)


def stop_with_half_open_streams(python: str, count: int = HALF_OPEN, drain_seconds: float = 10) -> float:
    """Return the seconds that SIGTERM takes with so many streams, half of them unread scans, half silent writers."""
    with tempfile.TemporaryDirectory(prefix="nyala-attack-") as directory:
        server = Server(python, Path(directory) / "data", 100_000, "--drain-seconds", str(drain_seconds))
        client = connect(server.url, server.token)
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
        (ATTACKS | {each.__name__: each for each in (busy, sessions)})[asked.attacker[0]](asked.attacker[1])
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
