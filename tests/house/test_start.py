"""What a start does not import: counted by modules, since times depend on the machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import nyala

SELDOM = ("typer", "rich", "numpy", "pyarrow", "pyarrow.compute", "grpc")
SECURITY = "nyala.flight_server.security.security"
HTTP = ("starlette", "uvicorn", "h11", "prometheus_client", "asyncio")
DATA = ("pandas", "polars", "pyspark", "datafusion", "duckdb", "numpy.ma")
NEVER = ("numba", "llvmlite", *DATA, "jwt", "cryptography", "opentelemetry", SECURITY, *HTTP)
"""Not by any of these starts: a store without SQL text, statements, data frames, TLS, tokens, HTTP, traces and
encryption needs none of them."""
REPORT = f"""
import json, sys
def report():
    print(json.dumps([name for name in {NEVER + SELDOM} if name in sys.modules]))
"""

IMPORT = "import nyala\nreport()"
OPEN_AND_GET = """
import nyala
with nyala.open({store!r}) as db:
    assert db.table("t").get(2) == {{"id": 2, "name": "b"}}
    report()
"""
ASK_A_BUCKET = """
from nyala.clients.offline_jobs.noted import noted_locations
assert noted_locations("file://{store}", "a") == []
report()
"""
MESSAGES = """
import inspect
builtins = []
inspect._signature_fromstr = lambda kind, function, *_: builtins.append(function.__name__) or inspect.Signature()
""" + OPEN_AND_GET.replace(
    "report()",
    """
    from nyala.schemas.message import Message
    kinds = Message.__subclasses__()
    ready = [kind.__name__ for kind in kinds if kind.__pydantic_complete__]
    print(json.dumps([builtins, len(kinds) > 50, *ready]))
""",
)
SERVE = """
import os, signal
from nyala.flight_server.serve import lifecycle
run_server = lifecycle.run_server
def run(open_store, listen, config, announce, security, exit_code, http, traces, process, name):
    assert security is None and http is None and traces is None and process is None and name is None
    run_server(open_store, listen, config, lambda location: (report(), os.kill(os.getpid(), signal.SIGTERM)))
lifecycle.run_server = run
from nyala.__main__ import main
sys.argv = ["nyala", "serve", "--data", {store!r}, "--listen", "grpc://127.0.0.1:0"]
main()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with rows in memory, to be replayed, and in files."""
    directory = tmp_path_factory.mktemp("start") / "store"
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
    with nyala.open(directory) as db:
        table = db.create_table("t", schema, primary_key=["id"])
        table.insert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        table.maintain("flush")
        table.insert([{"id": 3, "name": "c"}])
    return directory


def loaded(script: str, store: Path) -> list[Any]:
    """Run a script in a process of its own; return the list that it prints: which of the modules it imported."""
    done = subprocess.run(
        [sys.executable, "-c", REPORT + script.format(store=str(store))], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def test_import_loads_nothing(store: Path) -> None:
    assert loaded(IMPORT, store) == []


def test_a_client_that_asks_a_bucket_needs_no_engine(store: Path) -> None:
    """It is installed without numpy: ``nyala[bucket]``."""
    assert loaded(ASK_A_BUCKET, store) == []


def test_open_and_get_load_the_engine_alone(store: Path, library: Path) -> None:
    assert set(loaded(OPEN_AND_GET, store)) == {"numpy", "pyarrow"}


def test_checks_are_built_for_the_messages_that_a_start_meets(store: Path, library: Path) -> None:
    builtins, has_many, *ready = loaded(MESSAGES, store)
    assert not {"list", "dict"} & {*builtins}  # to find their signatures compiles the expressions of Python's tokenizer
    assert has_many
    assert "Footer" in ready
    assert len(ready) < 20


def test_a_server_is_ready_without_a_compiler(store: Path, library: Path) -> None:
    """llvmlite makes the few instructions of the hook in Arrow's server; nothing else uses it."""
    assert set(loaded(SERVE, store)) <= {"numpy", "pyarrow", "typer", "rich", "llvmlite"}
