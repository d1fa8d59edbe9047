"""A fast reader beside many that read one batch and stop: what is left of its rate.

    python tests/campaigns/attack/stalled_readers.py --counts 100 1000 --rounds 3 --seconds 5

A server holds a table of two million rows. The fast reader scans it over and over, for some seconds in peace, then
beside the stalled readers, then in peace again, and so on. Each stalled reader has a connection of its own, takes one
batch, and never reads on; when the server has no place for it, it asks again when the server says. The rate beside them
is compared with those in peace just before and after, so that a machine with other work to do changes both. Each number
of readers is measured with the limits that a server has by default, so that most of them find no place, and (``all``)
with places for all of them.

The table that comes out has the median ratio of the rates, the processor time of the server for a million rows of the
fast reader in peace and beside the others (what they ask for included), scans of the fast reader that failed, how many
streams were open at once, and the server's peak memory above the one before. At the end the server must let go of
everything: threads and files that are left are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa
import pyarrow.flight as fl

from tests.campaigns.attack.attack import LET_GO_SECONDS, ROWS, Server
from tests.campaigns.attack.attackers import MIB, PATIENCE_SECONDS
from tests.campaigns.attack.shown import VARIABLE, connect

TICKET = fl.Ticket(b'{"table":"homes"}')
A_PROCESS = 250
"""Stalled readers in one process."""
ALL = ("--set", "scans_max=2048", "--set", "peer_share=1", "--set", "known_share=0")
OPEN_SECONDS = 60.0
SETTLE_SECONDS = 60.0
"""The longest wait for the server to rest: the transport takes some MB for a reader that reads nothing."""
REST_SHARE = 0.05
"""Of a processor: a server that uses less rests."""


@dataclass(frozen=True)
class Outcome:
    """What a number of stalled readers left of a fast one."""

    readers: int
    places: str
    """``default``: the server's limits; ``all``: as many as the readers want."""
    ratio: float
    """The fast reader's rate to that in peace, median of the rounds."""
    ratios: tuple[float, ...]
    cpu_peace: float
    """Processor seconds of the server for a million rows of the fast reader, in peace."""
    cpu_beside: float
    failed: int
    open_streams: int
    """The most at one time, without the fast reader's."""
    peak_mb: float
    threads_left: int
    files_left: int


def stall(url: str, count: int) -> None:
    """Hold ``count`` streams of which one batch was read, until the process is killed."""

    def run() -> None:
        while True:
            # Clients of one process would share a connection.
            client = connect(url, generic_options=[("grpc.use_local_subchannel_pool", 1)])
            pause = 1.0
            try:
                stream = client.do_get(TICKET)
                stream.read_chunk()
                ended = threading.Event()
                ended.wait(PATIENCE_SECONDS)  # nothing is read: the reader does not notice that the stream has ended
                del stream
            except fl.FlightUnavailableError as error:
                pause = json.loads(error.extra_info or b"{}").get("retry_after_seconds", pause)
            except (fl.FlightError, pa.ArrowException, OSError):
                pass
            client.close()
            time.sleep(pause)

    for _ in range(count):
        threading.Thread(target=run, daemon=True).start()
    time.sleep(PATIENCE_SECONDS)


class FastReader:
    """Scans the whole table, with one connection."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client = connect(server.url, server.token, generic_options=[("grpc.use_local_subchannel_pool", 1)])
        self.failed = 0
        self.scan()

    def scan(self) -> int:
        """Scan once; return the number of rows."""
        try:
            return sum(chunk.data.num_rows for chunk in self._client.do_get(TICKET))
        except fl.FlightError:
            self.failed += 1
            time.sleep(0.1)
            return 0

    def measure(self, seconds: float) -> tuple[float, float]:
        """Scan for some seconds; return rows a second, and processor seconds of the server for a million rows."""
        rows, cpu, began = 0, self._server.cpu_seconds, time.monotonic()
        while time.monotonic() - began < seconds or not rows:
            rows += self.scan()
        taken = time.monotonic() - began
        return rows / taken, (self._server.cpu_seconds - cpu) / rows * 1e6


def open_streams(server: Server) -> int:
    """Return how many scans run on the server."""
    (result,) = connect(server.url, server.token).do_action(fl.Action("metrics", b""))
    families = json.loads(result.body.to_pybytes())["families"]
    (running,) = (family for family in families if family["name"] == "nyala_running_requests")
    return next(int(sample["value"]) for sample in running["samples"] if sample["labels"] == {"kind": "scan"})


def _wait_for_rest(server: Server, seconds: float) -> None:
    deadline, cpu = time.monotonic() + seconds, server.cpu_seconds
    while time.monotonic() < deadline:
        time.sleep(1)
        cpu, before = server.cpu_seconds, cpu
        if cpu - before < REST_SHARE:
            return


@contextmanager
def stalled(server: Server, count: int, expected: int, settle_seconds: float) -> Iterator[int]:
    """Keep readers stalled during the body, which begins when ``expected`` streams are open and the server rests, with
    their number."""
    url = server.url
    shares = [min(A_PROCESS, count - first) for first in range(0, count, A_PROCESS)]
    command = [sys.executable, __file__, "--stall", url]
    environment = os.environ | {VARIABLE: server.users_token}
    processes = [
        subprocess.Popen([*command, str(share)], env=environment, stderr=subprocess.DEVNULL) for share in shares
    ]
    try:
        deadline = time.monotonic() + OPEN_SECONDS
        while (found := open_streams(server)) < expected and time.monotonic() < deadline:
            time.sleep(0.2)
        _wait_for_rest(server, settle_seconds)
        yield max(found, open_streams(server))
    finally:
        for process in processes:
            process.kill()
            process.wait()
        deadline = time.monotonic() + LET_GO_SECONDS
        while open_streams(server) and time.monotonic() < deadline:
            time.sleep(0.2)


def run(
    count: int, places: str, rounds: int, seconds: float, settle: float = SETTLE_SECONDS, row_count: int = ROWS
) -> Outcome:
    """Measure one number of readers."""
    with tempfile.TemporaryDirectory() as folder:
        more = ALL if places == "all" else ()
        server = Server(sys.executable, Path(folder) / "data", row_count, *more)
        try:
            return _measured(server, count, places, rounds, seconds, settle)
        finally:
            server.stop()


def _measured(server: Server, count: int, places: str, rounds: int, seconds: float, settle: float) -> Outcome:
    fast = FastReader(server)
    fast.measure(seconds)
    held, peak = server.held, server.peak_bytes
    expected = count if places == "all" else min(count, 32)
    peace, beside, most = [fast.measure(seconds)], [], 0
    for _ in range(rounds):
        with stalled(server, count, expected, settle) as found:
            most = max(most, found)
            beside.append(fast.measure(seconds))
        peace.append(fast.measure(seconds))
    ratios = tuple(
        round(rate / ((before + after) / 2), 3)
        for (rate, _), (before, _), (after, _) in zip(beside, peace[:-1], peace[1:], strict=True)
    )
    deadline = time.monotonic() + LET_GO_SECONDS
    while time.monotonic() < deadline and any(now > then for now, then in zip(server.held, held, strict=True)):
        time.sleep(0.5)
    threads, files = (now - then for now, then in zip(server.held, held, strict=True))
    return Outcome(
        readers=count,
        places=places,
        ratio=statistics.median(ratios),
        ratios=ratios,
        cpu_peace=round(statistics.median(cpu for _, cpu in peace), 3),
        cpu_beside=round(statistics.median(cpu for _, cpu in beside), 3),
        failed=fast.failed,
        open_streams=most,
        peak_mb=round((server.peak_bytes - peak) / MIB, 1),
        threads_left=threads,
        files_left=files,
    )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 1_000])
    parser.add_argument("--places", nargs="+", choices=["default", "all"], default=["default", "all"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--stall", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stall:
        os.nice(19)  # they would be on other machines
        stall(asked.stall[0], int(asked.stall[1]))
        return
    for places in asked.places:
        for count in asked.counts:
            print(json.dumps(asdict(run(count, places, asked.rounds, asked.seconds, asked.settle))), flush=True)


if __name__ == "__main__":
    main()
