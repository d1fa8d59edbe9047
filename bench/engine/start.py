"""How soon an answer comes: import, open and get in a new process, a server, a new client, and a wheel's first start.

Each sample is a process of its own, and begins with its first line, before anything is imported. The wheel is the
newest in ``dist/`` (``make wheel``; without one its line is left out), installed into an environment of its own, which
knows the other packages by their folder, with a home that is new: nothing has been compiled or kept there.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

import nyala
from bench.engine.scratch import SUBJECT, Results
from bench.engine.servers import fill, serve_nyala
from bench.report import Suite

PROCESSES = 5
_ROOT = Path(__file__).parent.parent.parent
_ROWS_MAX = 1_000_000
_GET = """
import sys, time
began = time.perf_counter()
import nyala
with nyala.open(sys.argv[1]) as db:
    assert db.table("t").get(7)["amount"] == 49
    print(time.perf_counter() - began)
"""
_FIRST_USE = """
import sys, time
began = time.perf_counter()
import nyala
import pyarrow as pa
with nyala.open(sys.argv[1]) as db:
    table = db.create_table("t", pa.schema([("id", pa.int64()), ("amount", pa.int64())]), primary_key=["id"])
    table.insert([{"id": 7, "amount": 49}])
    assert table.get(7)["amount"] == 49
    print(time.perf_counter() - began)
"""
_FIRST_BATCH = """
import sys, time, nyala
with nyala.connect(sys.argv[1]) as db:
    table = db.table("t")
    began = time.perf_counter()
    assert next(iter(table.scan())).num_rows
    print(time.perf_counter() - began)
"""


def run(rows: int, rounds: int, work: Path, console: Console) -> Suite:
    """Measure a store of up to a million rows, by so many times five processes."""
    rows, processes = min(rows, _ROWS_MAX), PROCESSES * rounds
    results = Results(console)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    store, served = work / "store", work / "served"
    with nyala.open(str(store)) as database:
        fill(database, rows)
    measured: dict[str, Callable[[int], float]] = {
        "import, open and first get": lambda _: float(_output([sys.executable, "-c", _GET, str(store)])),
        "server ready": lambda _: _ready(store),
    }
    if wheels := sorted((_ROOT / "dist").glob("*.whl"), key=os.path.getmtime):
        python = _installed(wheels[-1], work / "wheel")
        measured["first start from a wheel"] = lambda number: _first_use(python, work / f"new-{number}")
    with serve_nyala(served) as url:
        with nyala.connect(url) as database:
            fill(database, rows)
        command = [sys.executable, "-c", _FIRST_BATCH, url]
        measured["first batch of a scan after connecting, warm server"] = lambda _: float(_output(command))
        samples: dict[str, list[float]] = {}
        for number in range(processes + 1):
            for case, measure in measured.items():
                seconds = measure(number)
                if number:  # the first one reads files that the system does not have in memory
                    samples.setdefault(case, []).append(seconds)
    for case, found in samples.items():
        results.add(case, "s", found, SUBJECT)
    shutil.rmtree(work, ignore_errors=True)
    return Suite("start", {"rows": rows, "processes": processes}, results.all)


def _output(command: list[str], **options: Any) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def _ready(store: Path) -> float:
    command = [sys.executable, "-m", "nyala", "serve", "--data", str(store), "--listen", "grpc://127.0.0.1:0", "--json"]
    began = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout and server.stdout.readline()
        return time.perf_counter() - began
    finally:
        server.terminate()
        server.communicate()


def _installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel without what it needs, which is taken from this environment; return the interpreter."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run([str(python), "-m", "pip", "install", "-q", "--no-deps", str(wheel)], check=True)
    packages = Path(_output([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _first_use(python: Path, folder: Path) -> float:
    home = folder / "home"
    home.mkdir(parents=True)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    seconds = float(_output([str(python), "-c", _FIRST_USE, str(folder / "store")], env=environment, cwd=home))
    shutil.rmtree(folder)
    return seconds
