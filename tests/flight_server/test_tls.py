"""TLS: who can connect, and certificates that are replaced while a server runs."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest
from cryptography import x509

import nyala
from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.requests.calls import Call
from nyala.flight_server.runtime.location import advertised, check_location, with_tls
from nyala.flight_server.security import certificates
from nyala.flight_server.security.file_watch import FileWatch, WatchedFiles
from nyala.flight_server.security.security import Security
from nyala.flight_server.security.token_file import create_token
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.errors import InvalidArgumentError, UnauthenticatedError, UnavailableError
from nyala.schemas.protocol.verb import Kind
from nyala.schemas.store.grants import GrantChange, Privilege
from nyala.schemas.table.table import TableDefinition
from tests.doubles.certificates import NAMES, UNNAMED, Authority, Pair
from tests.doubles.waiting import until
from tests.flight_server.fake_store import FakeStore
from tests.flight_server.served import SCHEMA, Served


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.server()


@pytest.fixture
def serve_tls(serve: Callable[..., Served], pair: Pair) -> Callable[..., Served]:
    def start(**options: Any) -> Served:
        store = FakeStore()
        store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
        asked: dict[str, Any] = options | (
            {"admins": ("alice", "bob")} if {"tls_client_ca", "tokens"} & options.keys() else {}
        )
        return serve(store, None, Security(ServeOptions(tls_cert=pair.certificate, tls_key=pair.key, **asked)))

    return start


def subject(served: Served, roots: Path, client: Pair | None = None) -> str:
    """The common name in the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=roots)
    context.set_alpn_protocols(["h2"])
    if client is not None:
        context.load_cert_chain(*client)
    with (
        socket.create_connection(("127.0.0.1", served.server.port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        found = encrypted.getpeercert()
        assert found
        return found["subject"][0][0][1]  # pyright: ignore[reportReturnType, reportGeneralTypeIssues, reportIndexIssue]


def test_rows_go_over_tls(serve_tls: Callable[..., Served], authority: Authority) -> None:
    served = serve_tls()
    with nyala.connect(served.url, tls_roots=authority.roots) as db:
        db.table("homes").insert([{"id": 1, "city": "Oslo", "price": 2.0}])
        assert db.table("homes").get(1) == {"id": 1, "city": "Oslo", "price": 2.0}
        assert db.table("homes").scan().to_arrow().num_rows == 1


def test_a_client_that_does_not_fit_is_told_why(
    serve_tls: Callable[..., Served], fake: Served, authority: Authority, tmp_path: Path
) -> None:
    served = serve_tls()
    other = Authority(tmp_path, "other").roots
    port = served.server.port
    with pytest.raises(UnavailableError, match=r"closed the connection: if it uses TLS, use grpc\+tls://"):
        nyala.connect(f"grpc://127.0.0.1:{port}", retries=False)
    with pytest.raises(UnavailableError, match="not from a trusted root; give --tls-roots"):
        nyala.connect(served.url, tls_roots=other, retries=False)
    with pytest.raises(UnavailableError, match="answers without TLS"):
        nyala.connect(fake.url.replace("grpc", "grpc+tls"), tls_roots=authority.roots, retries=False)
    with pytest.raises(InvalidArgumentError, match="is not PEM"):
        nyala.connect(served.url, tls_roots=__file__)


def test_a_client_certificate_is_required_and_verified(
    serve_tls: Callable[..., Served], authority: Authority, tmp_path: Path
) -> None:
    served = serve_tls(tls_client_ca=authority.roots)
    with nyala.connect(served.url, tls_roots=authority.roots, client_cert=authority.client("alice")) as db:
        assert db.tables() == ["homes"]
    stranger = Authority(tmp_path, "other")
    expired = authority.client("late", days=-1)
    for wrong in (None, stranger.client("alice"), expired, stranger.server("self")):
        with pytest.raises(UnavailableError, match="client certificate"):
            nyala.connect(served.url, tls_roots=authority.roots, client_cert=wrong, retries=False)


def test_a_client_certificate_or_a_token(
    serve: Callable[..., Served], authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    """With optional certificates; each user gets what is granted, and the token counts if both are shown."""
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
    store.grant(GrantChange(user="alice", table="homes", privileges=[Privilege.READ]))
    token, _ = create_token(tmp_path / "tokens.json", "bob")
    options = ServeOptions(
        tls_cert=pair.certificate,
        tls_key=pair.key,
        tls_client_ca=authority.roots,
        tls_client_certs="optional",
        tokens=tmp_path / "tokens.json",
    )
    url = serve(store, None, Security(options)).url
    certificate = authority.client("alice")
    seen: list[tuple[dict[str, Any], list[str]]] = [
        ({"client_cert": certificate}, ["homes"]),
        ({"token": token}, []),
        ({"client_cert": certificate, "token": token}, []),
    ]
    for shown, tables in seen:
        with nyala.connect(url, tls_roots=authority.roots, **shown) as db:
            assert db.tables() == tables
    with pytest.raises(UnauthenticatedError, match="neither a token nor a client certificate"):
        nyala.connect(url, tls_roots=authority.roots).tables()
    with pytest.raises(UnauthenticatedError, match="not valid"):
        nyala.connect(url, tls_roots=authority.roots, client_cert=certificate, token=token[:-1] + "_")
    stranger = Authority(tmp_path, "other").client("alice")
    with pytest.raises(UnavailableError, match="client certificate"):
        nyala.connect(url, tls_roots=authority.roots, client_cert=stranger, token=token, retries=False)
    store.close()


def test_the_user_is_the_name_in_the_certificate(serve_tls: Callable[..., Served], authority: Authority) -> None:
    served = serve_tls(tls_client_ca=authority.roots)
    seen: list[str] = []
    begin = served.server.calls.begin

    def recorded(context: fl.ServerCallContext, verb: str, kind: Kind, size: int = 0) -> Call:
        call = begin(context, verb, kind, size)
        seen.append(call.identity.user if call.identity else "")
        return call

    served.server.calls.begin = recorded
    names = [[], *([name] for name, _ in NAMES)]
    for each in names:
        certificate = authority.client("bob", names=each)
        with nyala.connect(served.url, tls_roots=authority.roots, client_cert=certificate) as db:
            db.now()
    assert list(dict.fromkeys(seen)) == ["bob", *(user for _, user in NAMES)]


@pytest.mark.parametrize("name", UNNAMED, ids=lambda name: type(name).__name__)
def test_a_certificate_that_names_no_user_is_refused(
    serve_tls: Callable[..., Served], authority: Authority, name: x509.GeneralName
) -> None:
    """gRPC gives all of them one name: they would be one user."""
    served = serve_tls(tls_client_ca=authority.roots)
    certificate = authority.client("alice", names=[name])
    with pytest.raises(UnauthenticatedError, match="the client certificate names no user"):
        nyala.connect(served.url, tls_roots=authority.roots, client_cert=certificate).tables()


def test_new_certificates_are_used_and_wrong_ones_are_not(
    serve_tls: Callable[..., Served], authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve_tls()
    with nyala.connect(served.url, tls_roots=authority.roots) as db:
        assert subject(served, authority.roots) == "server"
        authority.server("second", into=pair)
        until(lambda: subject(served, authority.roots) == "second")
        pair.key.write_text("no key")
        until(lambda: "the old certificates stay in force" in caplog.text)
        authority.server("late", days=-1, into=pair)
        until(lambda: "certificate has expired" in caplog.text)
        assert subject(served, authority.roots) == "second"
        authority.server("third", into=pair)
        until(lambda: subject(served, authority.roots) == "third")
        assert db.tables() == ["homes"]  # on its first connection


def test_no_call_fails_while_certificates_are_replaced(
    serve_tls: Callable[..., Served], authority: Authority, pair: Pair
) -> None:
    served = serve_tls(tls_client_ca=authority.roots)
    client = authority.client("alice")
    stop = threading.Event()
    failed: list[BaseException] = []
    counts = [0, 0]

    def call(number: int) -> None:
        try:
            while not stop.is_set():
                # A new connection each time, or many calls on one.
                with nyala.connect(served.url, tls_roots=authority.roots, client_cert=client, retries=False) as db:
                    for _ in range(1 if number == 0 else 50):
                        assert db.tables() == ["homes"]
                        counts[number] += 1
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for number in range(20):
        authority.server(f"server-{number}", into=pair)
        served.server._security.load_again()  # pyright: ignore[reportOptionalMemberAccess]
        time.sleep(0.05)
    until(lambda: bool(failed) or min(counts) > 20)
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert subject(served, authority.roots, client) == "server-19"


def test_two_servers_of_a_process_have_their_own_certificates(
    serve: Callable[..., Served], authority: Authority, tmp_path: Path
) -> None:
    served = []
    for name in ("one", "two"):
        pair = authority.server(name)
        served.append(serve(FakeStore(), None, Security(ServeOptions(tls_cert=pair.certificate, tls_key=pair.key))))
    plain = serve(FakeStore())
    assert [subject(each, authority.roots) for each in served] == ["one", "two"]
    assert list(plain.client.do_action(fl.Action("health", b"")))


def test_watching_goes_on_after_any_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "file"
    path.write_text("1")
    loaded: list[str] = []

    def load() -> None:
        loaded.append(path.read_text())
        if loaded[-1] == "22":
            raise RecursionError("a mistake")

    watch = FileWatch([WatchedFiles("words", [path], load)], poll_seconds=0.02)
    path.write_text("22")
    until(lambda: "the old words stay in force" in caplog.text)
    path.write_text("333")
    until(lambda: loaded[-1] == "333")
    watch.stop()


def test_files_that_vanish_while_they_are_checked_are_rejected(
    pair: Pair, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for gone in (pair.key, authority.roots):
        read = certificates._read

        def read_last(path: Path, read: Callable[[Path], bytes] = read, gone: Path = gone) -> bytes:
            found = read(path)
            if path == gone:
                gone.rename(gone.with_suffix(".away"))
            return found

        with monkeypatch.context() as patched:
            patched.setattr(certificates, "_read", read_last)
            with pytest.raises(InvalidArgumentError, match="No such file"):
                certificates.read_certificates(*pair, authority.roots)
        gone.with_suffix(".away").rename(gone)


FILES = {
    "a missing file": lambda pair: pair.key.unlink(),
    "a key that others can read": lambda pair: pair.key.chmod(0o640),
    "another key": lambda pair: pair.key.write_bytes(Authority(pair.key.parent, "x").server("y").key.read_bytes()),
    "no PEM": lambda pair: pair.certificate.write_text("no certificate"),
    "an expired certificate": lambda pair: Authority(pair.key.parent, "z").server(days=-1, into=pair),
}


@pytest.mark.parametrize("case", FILES)
def test_a_server_does_not_start_with(case: str, pair: Pair) -> None:
    FILES[case](pair)
    with pytest.raises(InvalidArgumentError, match=rf"{pair.key.parent}"):
        Security(ServeOptions(tls_cert=pair.certificate, tls_key=pair.key))


@pytest.mark.parametrize(
    ("location", "tls", "authentication", "insecure", "why"),
    [
        ("grpc://0.0.0.0:1", False, False, False, r"lacks TLS .* and authentication"),
        ("grpc+tls://0.0.0.0:1", True, False, False, "lacks authentication"),
        ("grpc://0.0.0.0:1", False, True, False, "lacks TLS"),
        ("grpc+tls://127.0.0.1:1", False, True, True, "needs a certificate"),
        ("grpc+tls://0.0.0.0:1", True, True, False, None),
        ("grpc://0.0.0.0:1", False, False, True, None),
        ("grpc://127.0.0.1:1", False, False, False, None),
        ("grpc+unix:///a/b", False, False, False, None),
    ],
)
def test_where_a_server_may_listen(
    location: str, tls: bool, authentication: bool, insecure: bool, why: str | None
) -> None:
    if why is None:
        check_location(location, insecure, tls, authentication)
        return
    with pytest.raises(InvalidArgumentError, match=why):
        check_location(location, insecure, tls, authentication)


@pytest.mark.parametrize(
    "location", ["m1:8815", "http://m1:8815", "grpc://m1", "grpc://m1:0", "grpc://m1:x", "", "grpc+unix://"]
)
def test_what_clients_cannot_call_is_not_advertised(location: str) -> None:
    for tls in (False, True):
        with pytest.raises(InvalidArgumentError, match="--advertise"):
            advertised(location, tls)


def test_what_is_advertised_has_the_tls_of_the_server() -> None:
    assert advertised("grpc://m1:8815", True) == advertised("grpc+tls://m1:8815", False) == "grpc+tls://m1:8815"
    assert advertised("grpc://[::1]:8815", False) == "grpc://[::1]:8815"
    assert advertised("grpc+unix:///a", True) == "grpc+unix:///a"


def test_a_certificate_makes_the_location_one_with_tls() -> None:
    assert with_tls("grpc://h:1") == with_tls("grpc+tls://h:1") == "grpc+tls://h:1"
    assert with_tls("grpc+unix:///a") == "grpc+unix:///a"
    with pytest.raises(InvalidArgumentError, match="has no TLS"):
        with_tls("grpc+tcp://h:1")
    with pytest.raises(InvalidArgumentError, match="needs both"):
        Security(ServeOptions(tls_client_ca=Path("x")))


@pytest.fixture
def process(tmp_path: Path, pair: Pair) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "nyala", "serve", "--data", tmp_path / "store", "--listen", "grpc://127.0.0.1:0"]
    tls = ["--tls-cert", pair.certificate, "--tls-key", pair.key, "--json"]
    with subprocess.Popen([*command, *tls], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield server, json.loads(server.stdout.readline())["location"]
        server.kill()


def test_the_command_serves_tls_and_hears_sighup(
    process: tuple[subprocess.Popen[str], str], authority: Authority, pair: Pair
) -> None:
    server, location = process
    assert location.startswith("grpc+tls://")
    listed = subprocess.run(
        [sys.executable, "-m", "nyala", "--tls-roots", authority.roots, "list", "--url", location, "--json"],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("NYALA_TLS")},
    )
    assert (listed.returncode, json.loads(listed.stdout)) == (0, []), listed.stderr
    before = pair.certificate.stat()
    server.send_signal(signal.SIGHUP)
    assert server.stderr
    line = next(line for line in server.stderr if "certificates" in line)
    assert json.loads(line)["message"] == "loaded the certificates again"
    assert pair.certificate.stat().st_mtime_ns == before.st_mtime_ns
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0


def test_a_wrong_root_is_one_line_on_the_command_line(
    serve_tls: Callable[..., Served], authority: Authority, tmp_path: Path
) -> None:
    """gRPC writes lines of its own, unless the user or the command says otherwise."""
    served = serve_tls()
    command = [sys.executable, "-m", "nyala", "--tls-roots", Authority(tmp_path, "other").roots]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NYALA_", "GRPC_"))}
    for chosen, lines in (({}, 1), ({"GRPC_VERBOSITY": "INFO"}, 2)):
        done = subprocess.run(
            [*command, "list", "--url", served.url], capture_output=True, text=True, env=kept | chosen
        )
        assert "give --tls-roots (tls_roots, NYALA_TLS_ROOTS)" in done.stderr
        assert (len(done.stderr.splitlines()) == 1) is (lines == 1), done.stderr
