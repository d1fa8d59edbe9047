"""What tokens, grants and TLS cost: calls and rows over Flight, beside the same server without them.

Processor time is that of client and server together; the whole table is also measured by the clock, since what counts
there is the rate. Bare pyarrow servers show what is the transport's own: a header that a middleware looks at, and TLS.
Servers take turns in every round. Needs ``openssl``.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
from rich.console import Console

import nyala
from bench.engine.scratch import Results
from bench.engine.servers import WHOLE, fill, serve_bare, serve_nyala
from bench.report import Suite
from bench.spark.processes import Meter
from nyala.flight_server.security.token_file import create_token

PLAIN = "Nyala"
CALLS = 2_000
SCANS = 5
_ROWS_MAX = 2_000_000
Acts = dict[str, tuple[int, Callable[[int], object]]]
"""What one server is asked: case -> how often, and the request by its number."""
Cost = tuple[float, float]
"""Seconds by the clock and of the processors, of one request."""


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure a table of up to two million rows."""
    rows = min(rows, _ROWS_MAX)
    results, costs = Results(console), dict[tuple[str, str], list[Cost]]()
    work.mkdir(parents=True, exist_ok=True)
    with ExitStack() as open_now:
        subjects = _subjects(rows, work, open_now)
        for number in range(rounds + 1):
            for subject in list(subjects)[:: -1 if number % 2 else 1]:
                for case, (count, act) in subjects[subject].items():
                    cost = _cost(count, act)
                    if number:  # the first round is a rehearsal
                        costs.setdefault((case, subject), []).append(cost)
    for case in subjects[PLAIN]:
        unit, scale = ("s", 1.0) if case == "whole table" else ("us", 1e6)
        for subject in subjects:
            if found := costs.get((case, subject)):
                results.add(f"{case}, processor time", unit, [busy * scale for _, busy in found], subject)
                if case == "whole table":
                    results.add(f"{case}: rate", "rows/s", [rows / seconds for seconds, _ in found], subject)
    return Suite("security", {"rows": rows, "rounds": rounds, "calls": CALLS}, results.all)


def _cost(count: int, act: Callable[[int], object]) -> Cost:
    meter, began = Meter(os.getpid()), time.perf_counter()
    for number in range(count):
        act(number)
    return (time.perf_counter() - began) / count, meter.stop() / count


def _subjects(rows: int, work: Path, open_now: ExitStack) -> dict[str, Acts]:
    certificate, key = _certificate(work)
    tls = ("--tls-cert", str(certificate), "--tls-key", str(key))
    roots = {"tls_roots": certificate}
    serve = partial(_served, rows, work)
    return {
        PLAIN: open_now.enter_context(serve("plain")),
        "Nyala, token and grants": open_now.enter_context(_granted(rows, work)),
        "Nyala, TLS": open_now.enter_context(serve("tls", *tls, listen="grpc+tls://127.0.0.1:0", given=roots)),
        "Nyala, Unix socket": open_now.enter_context(serve("unix", listen=f"grpc+unix://{work}/socket")),
        "bare": _bare(open_now.enter_context(serve_bare(rows))),
        "bare, header and middleware": _bare(open_now.enter_context(serve_bare(rows, "--middleware")), header=True),
        "bare, TLS": _bare(open_now.enter_context(serve_bare(rows, "--tls", str(certificate), str(key))), certificate),
    }


def _certificate(work: Path) -> tuple[Path, Path]:
    """Make a certificate for this machine that certifies itself."""
    certificate, key = work / "server.crt", work / "server.key"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    return certificate, key


@contextmanager
def _served(rows: int, work: Path, name: str, *options: str, given: Any = None, **listen: str) -> Iterator[Acts]:
    with serve_nyala(work / name, *options, **listen) as url, nyala.connect(url, **given or {}) as database:
        fill(database, rows)
        yield _nyala(database, rows)


@contextmanager
def _granted(rows: int, work: Path) -> Iterator[Acts]:
    """A user with a token, who may read and write each column of the table by name."""
    tokens = work / "tokens.json"
    tokens.unlink(missing_ok=True)
    root, alice = create_token(tokens, "root", ("admin",))[0], create_token(tokens, "alice", ())[0]
    with serve_nyala(work / "granted", "--tokens", str(tokens)) as url:
        with nyala.connect(url, token=root) as database:
            fill(database, rows)
            columns = [column.name for column in database.table("t").schema]
            database.grant("read", on="t", to="alice", columns=columns)
            database.grant(["insert", "update"], on="t", to="alice")
        with nyala.connect(url, token=alice) as database:
            yield _nyala(database, rows)


def _nyala(database: nyala.Database, rows: int) -> Acts:
    table = database.table("t")
    row = {"amount": 7, "price": 0.5, "city": "city 1", "note": "a longer note", "count": 3}
    return {
        "get in a session": (CALLS, lambda number: table.get(number * 7_919 % rows)),
        "row written in a session": (CALLS // 4, lambda number: table.upsert([{"id": number * 7_919 % rows, **row}])),
        "call of its own": (CALLS, lambda _: database.now()),
        "whole table": (SCANS, lambda _: sum(batch.num_rows for batch in table.scan())),
    }


def _bare(url: str, roots: Path | None = None, header: bool = False) -> Acts:
    client = fl.connect(url, tls_root_certs=roots.read_bytes() if roots else None)
    shown = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + b"x" * 43)] if header else [])
    action, whole = fl.Action("now", b"{}"), fl.Ticket(WHOLE)
    return {
        "call of its own": (CALLS, lambda _: list(client.do_action(action, shown))),
        "whole table": (SCANS, lambda _: sum(chunk.data.num_rows for chunk in client.do_get(whole, shown))),
    }
