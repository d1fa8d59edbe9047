"""What all tests share."""

import faulthandler
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from tests.dose import dose
from tests.turns import left_out, noted

# No deadline, nor a limit to how long data may take: the first call of a kernel compiles it, and the machine is shared.
settings.register_profile(
    "nyala",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=dose(15, 100),  # each run draws others
)
settings.load_profile("nyala")

LONGEST = (
    "tests/clients/spark/test_kill_campaign.py",
    "tests/clients/spark/test_spark_tpch.py",
    "tests/house/test_docs.py",
    "tests/campaigns/bounds",
    "tests/engine/kernels/compile/test_warmup.py",
    "tests/campaigns/model",
    "tests/campaigns/crash",
    "tests/campaigns/corruption",
    "tests/campaigns/soak",
    "tests/campaigns/failover",
)
"""Where tests take long. The soak is not among the first: its load should be steady, and Spark starts beside those."""


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Print the thread that crashed, and no other: pytest's own report ends after a hundred threads, and a process that
    has run servers may have more. Take Ctrl-C, which shells have their jobs in the background ignore: tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if fault_handler_stderr_fd_key in config.stash:
        faulthandler.enable(config.stash[fault_handler_stderr_fd_key], all_threads=False)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the longest tests: one that begins last keeps a single process busy while the others have no work.
    Leave out tests that have their turn in another run."""
    if turn := os.environ.get("TURN"):
        out = set(left_out(items, int(turn)))
        items[:] = [item for item in items if item not in out]
        config.hook.pytest_deselected(items=list(out))
    root = Path(__file__).parent.parent
    places = [root / name for name in LONGEST]
    assert all(place.exists() for place in places), "LONGEST names what is not there"

    def rank(item: pytest.Item) -> int:
        return next((at for at, place in enumerate(places) if item.path.is_relative_to(place)), len(places))

    ranks = {path: rank(item) for path, item in {item.path: item for item in items}.items()}
    items.sort(key=lambda item: ranks[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note the cost of each test, if that is asked for."""
    with noted(item):
        return (yield)


def pytest_collection_finish() -> None:
    """Let the garbage collector skip the tests and modules, which stay. Walks through them in full collections took a
    fifth of the processor time."""
    gc.collect()
    gc.freeze()


CREDENTIALS = [
    f"NYALA_{name}"
    for name in ("TOKEN", "TOKEN_FILE", "TLS_ROOTS", "CLIENT_CERT", "CLIENT_KEY", "KEY_FILE", "KEY_COMMAND")
]


@pytest.fixture(autouse=True)
def credentials_of_a_test() -> Iterator[None]:
    """Forget the token or key that a command line, run in this process, leaves in the environment.

    Not by ``monkeypatch``: then all patches of a test would outlast its other fixtures.
    """
    before = {name: os.environ[name] for name in CREDENTIALS if name in os.environ}
    yield
    for name in CREDENTIALS:
        os.environ.pop(name, None)
    os.environ.update(before)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """The URI of a place in a server that plays S3."""
    from moto.server import ThreadedMotoServer
    from pyarrow.fs import S3FileSystem

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"access_key": "any", "secret_key": "any"}
    S3FileSystem(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True, **keys).create_dir("bucket")
    yield f"s3://any:any@bucket/prefix?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
    server.stop()


@pytest.fixture(scope="session")
def library() -> Path:
    """The library of kernels for this machine, in the cache. It is made if there is none, which takes a minute."""
    from nyala.engine.kernels.ahead.levels import usable_levels
    from nyala.engine.kernels.ahead.library import library_name
    from nyala.engine.kernels.ahead.private import cache_base, source_digest

    if not usable_levels():
        pytest.skip("this processor has no libraries")
    code = "from nyala.engine.kernels.compile.making import ensure_library; ensure_library()"
    subprocess.run([sys.executable, "-c", code], check=True)
    path = cache_base() / "libraries" / library_name(usable_levels()[0], source_digest())
    assert path.is_file()
    return path
