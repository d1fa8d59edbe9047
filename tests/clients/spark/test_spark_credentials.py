"""Credentials as options of Spark: they work everywhere, and nothing that Spark shows or keeps has them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import nyala
from nyala.clients.spark.options import BatchReadOptions, parse
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.server import FlightServer
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import InvalidArgumentError
from tests.clients.spark.sessions import needs_java
from tests.doubles.certificates import Authority

SCHEMA = pa.schema([("id", pa.int64()), ("city", pa.string())])
PLACE = {"uri": "grpc+tls://127.0.0.1:1", "table": "homes"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path, Path]]:
    """The address of a server with TLS and tokens, and the files of a token and of its roots."""
    authority = Authority(tmp_path)
    pair = authority.server()
    token, _ = create_token(tmp_path / "tokens.json", "root", ("admin",))
    (tmp_path / "root.token").write_text(token)
    security = Security(ServeOptions(tls_cert=pair.certificate, tls_key=pair.key, tokens=tmp_path / "tokens.json"))
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    server = FlightServer(store, "grpc+tls://127.0.0.1:0", security=security)
    yield f"grpc+tls://127.0.0.1:{server.port}", tmp_path / "root.token", authority.roots
    server.shutdown()
    store.close()


@pytest.mark.spark
def test_nothing_that_spark_shows_or_keeps_has_the_token(
    served: tuple[str, Path, Path], shim: Path | None, tmp_path: Path
) -> None:
    needs_java()
    uri, token_file, roots = served
    token = token_file.read_text()
    with nyala.connect(uri, token=token, tls_roots=roots) as db:
        for name in ("homes", "copy"):
            db.create_table(name, SCHEMA, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    folder = tmp_path / "spark"
    folder.mkdir()
    script = Path(__file__).parent / "secret_driver.py"
    given = [uri, str(token_file), str(roots), str(folder), *([str(shim)] if shim else [])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NYALA_TOKEN")}
    with (folder / "log").open("w") as log:
        done = subprocess.run([sys.executable, str(script), *given], stdout=log, stderr=log, env=environment)
    told = (folder / "log").read_text(errors="replace")
    assert done.returncode == 0, told[-4_000:]
    with nyala.connect(uri, token=token, tls_roots=roots) as db:
        assert db.table("copy").count() == 99 + bool(shim)
    searched = files_below(folder)
    assert "== Physical Plan ==" in told and "redacted" in told
    assert any(b"SparkListenerSQLExecutionStart" in content for content in searched.values()), "the events are here"
    assert any("offsets" in path.parts for path in searched), "the checkpoint is here"
    secret = token.rpartition("_")[2][:30].encode()
    assert [path for path, content in searched.items() if secret in content] == []


def files_below(folder: Path) -> dict[Path, bytes]:
    """Return what files hold, by path. The JVM may still be removing its own."""
    found: dict[Path, bytes] = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                if path.is_file():
                    found[path] = path.read_bytes()
    return found


def test_options_show_no_token_and_are_sent_whole() -> None:
    options = parse(BatchReadOptions, PLACE | {"token": "planted", "tlsroots": "ca.pem"}, "read")
    assert options.credentials.token == "planted" and options.credentials.tls_roots == Path("ca.pem")
    assert pickle.loads(pickle.dumps(options)).credentials == options.credentials
    assert "planted" not in f"{options} {options!r} {options.model_dump()} {options.model_dump_json()}"
    assert options.is_writable, "a view with credentials is that of a whole table"


def test_a_certificate_alone_has_its_key() -> None:
    options = parse(BatchReadOptions, PLACE | {"clientcert": "me.pem"}, "read")
    assert (options.credentials.client_cert, options.credentials.client_key) == (Path("me.pem"), Path("me.pem"))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"token": "planted", "tokenfile": "x"}, "exclude each other"),
        ({"clientkey": "x"}, "set clientCert too"),
    ],
)
def test_credentials_that_do_not_fit_together(given: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why) as caught:
        _ = parse(BatchReadOptions, PLACE | given, "read").credentials
    assert "planted" not in str(caught.value)
