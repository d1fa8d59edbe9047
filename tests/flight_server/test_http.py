"""The HTTP port: health, readiness and metrics, through the front door."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from cryptography import x509
from prometheus_client.openmetrics import parser as openmetrics

import nyala
from nyala.flight_server.http.connections import name_in
from nyala.flight_server.security.token_file import create_token, revoke_tokens
from nyala.flight_server.serve.port import HttpPort
from nyala.flight_server.settings.settings import ServeOptions
from nyala.schemas.cells.timestamp import datetime_of
from nyala.schemas.errors import UnavailableError
from nyala.schemas.store.grants import GrantChange, Privilege
from tests.doubles.certificates import NAMES, UNNAMED, Authority
from tests.doubles.waiting import until
from tests.flight_server.http_client import Port, ask, of, values_of
from tests.flight_server.served import SCHEMA

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"


def test_a_server_lives_before_it_is_ready() -> None:
    http = HttpPort("127.0.0.1", 0, None)
    try:
        assert ask(http.url + "/healthz") == (200, '{"status":"alive"}')
        assert ask(http.url + "/readyz") == (503, '{"status":"starting"}')
        status, text = ask(http.url + "/metrics")
        assert (status, json.loads(text)["code"]) == (503, "UNAVAILABLE")
    finally:
        http.stop()
    with pytest.raises(urllib.error.URLError):
        ask(http.url + "/healthz")


def test_a_server_is_ready_until_it_drains(port: Callable[..., Port]) -> None:
    one = port()
    assert one.ask("/readyz") == (200, '{"status":"ready"}')
    one.served.server.admission.drain()
    assert one.ask("/readyz") == (503, '{"status":"stopping"}')
    assert one.ask("/healthz")[0] == 200
    assert one.ask("/metrics")[0] == 200


def test_a_read_only_or_broken_store_is_not_ready(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    one = port()
    store = one.served.store
    healthy = store.health()
    monkeypatch.setattr(store, "health", lambda: healthy.model_copy(update={"status": "read_only"}))
    assert one.ask("/readyz") == (503, '{"status":"read_only"}')

    def broken() -> None:
        raise UnavailableError("the disk is gone")

    monkeypatch.setattr(store, "health", broken)
    assert one.ask("/readyz") == (503, '{"status":"failed"}')


def test_what_happens_is_counted(port: Callable[..., Port]) -> None:
    one = port()
    before = one.values()
    with nyala.connect(one.served.url) as db:
        homes = db.table("homes")
        homes.insert([{"id": number, "city": "Oslo", "price": 1.0} for number in range(100)])
        for number in range(7):
            assert homes.get(number)
        with pytest.raises(nyala.NotFoundError):
            db.table("castles")
        homes.maintain("flush")
    one.served.get({"table": "homes", "where": "id < 50"})
    one.served.put("homes", one.served.rows(3, 1000))
    after = one.values()

    def grown(name: str, **labels: str) -> float:
        return of(after, name, **labels) - before.get((name, frozenset(labels.items())), 0.0)

    assert grown("nyala_request_seconds_count", verb="session_get") == 7
    assert grown("nyala_request_seconds_count", verb="session_write") == 1
    assert grown("nyala_request_seconds_count", verb="do_get") == 1
    assert grown("nyala_request_seconds_count", verb="do_put") == 1
    assert grown("nyala_request_seconds_bucket", verb="do_put", le="+Inf") == 1
    assert 0 < grown("nyala_request_seconds_sum", verb="session_get") < 7
    assert grown("nyala_request_errors_total", verb="describe_table", code="NOT_FOUND") == 1
    assert grown("nyala_written_rows_total") == 103
    with nyala.connect(one.served.url) as db:
        with db.transaction() as transaction:
            transaction.insert("homes", [{"id": 5000, "city": "Oslo", "price": 1.0}])
        assert db.table("homes").update_where({"price": "price + 1"}, where="id < 10").applied == 10
    assert of(one.values(), "nyala_written_rows_total") - of(before, "nyala_written_rows_total") == 103 + 1 + 10
    assert grown("nyala_received_bytes_total") > 103 * 8
    assert grown("nyala_sent_bytes_total") > 50 * 8
    assert grown("nyala_log_sync_seconds_count") >= 2
    assert grown("nyala_log_records_total") >= 2
    assert grown("nyala_maintenance_seconds_count", work="flush") == 1
    assert grown("nyala_maintenance_rows_total", work="flush") == 100
    assert grown("nyala_maintenance_written_bytes_total", work="flush") > 0
    assert grown("nyala_scan_rowsets_total", outcome="read") >= 1
    assert of(after, "nyala_table_rows", table="homes") == 103
    assert of(after, "nyala_table_rowsets", table="homes") == 1
    assert of(after, "nyala_table_size_bytes", table="homes", part="base") > 0
    assert of(after, "nyala_running_requests", kind="call") == 0
    assert of(after, "process_resident_memory_bytes") > 1 << 20
    assert abs(of(after, "process_start_time_seconds") - time.time()) < 7 * 86400


def test_a_write_that_others_follow_counts_once(port: Callable[..., Port]) -> None:
    one = port()
    writer, reader = one.served.client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'))
    writer.begin(pa.schema([]))
    line = b'{"write":{"table":"homes","op":"upsert"},"columns":["id","city","price"]}'
    for number in range(3):
        more = b"true" if number < 2 else b"false"
        writer.write_metadata(line + b'\n{"row":[%d,"Oslo",1.0],"more":%b}\n' % (number, more))
    for _ in range(3):
        assert b'"applied":1' in reader.read_chunk().app_metadata.to_pybytes()
    writer.close()
    values = one.values()
    assert of(values, "nyala_request_seconds_count", verb="session_write") == 3
    assert of(values, "nyala_written_rows_total") == 3


def documented() -> dict[str, str]:
    """The names in the document, with their types."""
    return dict(re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE))


def test_the_document_lists_what_is_exported(port: Callable[..., Port]) -> None:
    status, text = port().ask("/metrics")
    found = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert status == 200
    of_failover = {
        name: kind for name, kind in documented().items() if name.startswith(("nyala_failover_", "nyala_replica_"))
    }
    assert {**found, **of_failover, "nyala_process_up": "gauge"} == documented()


def test_a_process_starts_once(port: Callable[..., Port]) -> None:
    one = port()
    assert len({of(one.values(), "process_start_time_seconds") for _ in range(10)}) == 1


def test_names_follow_the_conventions(port: Callable[..., Port]) -> None:
    status, text = port().ask("/metrics", accept="application/openmetrics-text; version=1.0.0")
    families = list(openmetrics.text_string_to_metric_families(text))  # strict: units, suffixes, order of buckets
    assert status == 200 and len(families) > 40
    for family in families:
        assert re.fullmatch(r"(nyala|process)_[a-z][a-z_]*[a-z]", family.name)
        assert family.documentation.endswith(".")
        assert not re.search(r"_(ms|micro|milli|kb|mb|mib|minutes)\w*$", family.name)


@pytest.mark.parametrize("version", ["x.y", "1.0.0.x", "", "99.0.0", "-1"])
@pytest.mark.parametrize("kind", ["text/plain", "application/openmetrics-text"])
def test_any_version_of_the_format_may_be_asked_for(port: Callable[..., Port], kind: str, version: str) -> None:
    status, text = port().ask("/metrics", accept=f"{kind}; version={version}")
    assert status == 200 and "nyala_build_info" in text


def test_metrics_ask_who_calls_and_health_does_not(port: Callable[..., Port], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token, entry = create_token(tokens, "alice")
    one = port(ServeOptions(tokens=tokens, admins=("alice",)))
    assert one.ask("/healthz")[0] == one.ask("/readyz")[0] == 200
    for wrong in (None, token[:-1] + ("A" if token[-1] != "A" else "B"), "x" * 9000, ""):
        status, text = one.ask("/metrics", wrong)
        assert status == 401 and json.loads(text)["code"] == "UNAUTHENTICATED"
        assert token not in text and "nyala_log" not in text
    values = one.values(token)
    assert of(values, "nyala_authentication_failures_total", reason="missing") == 1
    assert of(values, "nyala_authentication_failures_total", reason="invalid") == 3
    with pytest.raises(fl.FlightUnauthenticatedError):
        one.served.action("tables")
    assert of(one.values(token), "nyala_authentication_failures_total", reason="missing") == 2
    revoke_tokens(tokens, frozenset({entry.id}))
    until(lambda: one.ask("/metrics", token)[0] == 401)


def test_metrics_need_a_grant(port: Callable[..., Port], tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    token, _ = create_token(tokens, "prometheus")
    one = port(ServeOptions(tokens=tokens))
    status, text = one.ask("/metrics", token)
    assert status == 403 and "no grant to maintain on all tables" in json.loads(text)["message"]
    one.served.store.grant(GrantChange(user="prometheus", table="*", privileges=[Privilege.MAINTAIN]))
    assert one.ask("/metrics", token)[0] == 200


def test_certificates_are_those_of_the_server(port: Callable[..., Port], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    trusting = ssl.create_default_context(cafile=authority.roots)
    one = port(ServeOptions(tls_cert=pair.certificate, tls_key=pair.key), trusting)
    assert one.http.url.startswith("https://")
    assert one.ask("/readyz")[0] == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(one.http.url + "/readyz")
    authority.server("second", into=pair)
    host, number = one.http.url.removeprefix("https://").rsplit(":", 1)
    until(lambda: subject(trusting, host, int(number)) == "second")
    assert one.ask("/readyz")[0] == 200


def subject(context: ssl.SSLContext, host: str, number: int) -> Any:
    with (
        socket.create_connection((host, number)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as encrypted,
    ):
        certificate: Any = encrypted.getpeercert()
        return certificate["subject"][0][0][1]


def test_a_client_certificate_says_who_calls(port: Callable[..., Port], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    trusting = ssl.create_default_context(cafile=authority.roots)
    words = "# Z\u00fcrich\n".encode(), "# Gen\u00e8ve\n".encode("latin1")
    authority.roots.write_bytes(authority.roots.read_bytes().join(words))
    options = ServeOptions(
        tls_cert=pair.certificate, tls_key=pair.key, tls_client_ca=authority.roots, admins=("alice",)
    )
    one = port(options, trusting)
    with pytest.raises((urllib.error.URLError, OSError)):
        one.ask("/healthz")
    trusting.load_cert_chain(*authority.client("alice"))
    assert one.ask("/metrics")[0] == 200


@pytest.mark.parametrize(("name", "user"), [*NAMES, *((name, None) for name in UNNAMED)])
def test_both_ports_read_one_user_from_a_certificate(
    port: Callable[..., Port], tmp_path: Path, name: x509.GeneralName, user: str | None
) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    trusting = ssl.create_default_context(cafile=authority.roots)
    trusting.load_cert_chain(*authority.client("alice", names=[name]))
    admins = (user or "alice", "other types of SAN")
    options = ServeOptions(tls_cert=pair.certificate, tls_key=pair.key, tls_client_ca=authority.roots, admins=admins)
    status, text = port(options, trusting).ask("/metrics")
    assert status == (200 if user else 401), text
    assert user or "names no user" in text


def test_the_name_in_a_certificate_is_its_first_alternative_name() -> None:
    subject = ((("organizationName", "o"),), (("commonName", "alice"),))
    assert name_in({"subject": subject}) == "alice"
    assert (
        name_in({"subject": subject, "subjectAltName": (("URI", "spiffe://x/bob"), ("DNS", "b"))}) == "spiffe://x/bob"
    )
    assert name_in({}) is name_in(None) is None


def test_what_is_not_there_and_what_is_too_long_is_refused(port: Callable[..., Port]) -> None:
    one = port()
    assert one.ask("/nothing") == (404, '{"message":"Not Found"}')
    assert one.ask("/metrics/../../etc/passwd")[0] == 404
    with suppress(OSError):  # the connection may be closed before all of it is sent
        assert one.ask("/healthz", accept="x" * 4_000_000)[0] == 400
    request = urllib.request.Request(one.http.url + "/metrics", b"rows", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="405"):
        urllib.request.urlopen(request, timeout=20)
    assert one.ask("/healthz")[0] == 200


def test_metrics_are_read_while_rows_are_written(port: Callable[..., Port]) -> None:
    one = port()
    stopped = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with nyala.connect(one.served.url) as db:
                homes, number = db.table("homes"), 0
                while not stopped.is_set():
                    homes.upsert([{"id": number % 50, "city": "Oslo", "price": float(number)}])
                    number += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    counts: list[float] = []
    deadline = time.monotonic() + 20
    while len(counts) < 10 or (counts[-1] == counts[0] and time.monotonic() < deadline):
        values = one.values()
        counts.append(values.get(("nyala_written_rows_total", frozenset()), 0.0))
        for (name, labels), value in values.items():
            if name == "nyala_request_seconds_count":
                last = ("nyala_request_seconds_bucket", labels | {("le", "+Inf")})
                assert values[last] == value
    stopped.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert counts == sorted(counts) and counts[-1] > counts[0]


class Process:
    """``nyala serve`` with an HTTP port."""

    def __init__(self, data: Path, *options: str) -> None:
        listen = ("--listen", "grpc://127.0.0.1:0", "--http-port", "0", "--json")
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(data), *listen, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = json.loads(self.process.stdout.readline())
        self.location, self.http = line["location"], line["http"]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=30)
        return self.process.returncode


def test_a_served_store_drains_and_comes_back(tmp_path: Path) -> None:
    with Process(tmp_path) as first:
        with nyala.connect(first.location) as db:
            table = db.create_table("homes", SCHEMA, primary_key=["id"])
            table.insert([{"id": number, "city": "Oslo", "price": 1.0} for number in range(5000)])
        assert ask(first.http + "/readyz") == (200, '{"status":"ready"}')
        # A session that is open holds nobody up: the scan does, since nobody reads it.
        table = pa.table({"id": range(1_000_000)})
        with nyala.connect(first.location) as db:
            many = db.create_table("many", table.schema, primary_key=["id"])
            many.insert(table)
        reader = fl.connect(first.location).do_get(fl.Ticket(b'{"table":"many"}'))
        reader.read_chunk()
        first.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 20
        while (answer := ask(first.http + "/readyz")) != (503, '{"status":"stopping"}'):
            assert answer[0] == 200 and time.monotonic() < deadline
        assert ask(first.http + "/healthz")[0] == 200
        for _ in reader:
            pass
        first.process.communicate(timeout=30)
        assert first.process.returncode == 0
    with Process(tmp_path) as second:
        values = values_of(ask(second.http + "/metrics")[1])
        assert of(values, "nyala_table_rows", table="homes") == 5000
        assert second.stop() == 0


def test_an_open_address_needs_what_the_server_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nyala", "serve", "--data", str(tmp_path), "--http-port", "0"]
    done = subprocess.run(
        [*command, "--listen", "grpc://127.0.0.1:0", "--set", "http_host=0.0.0.0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode and "other machines can reach 0.0.0.0" in done.stderr


def test_the_two_ports_differ(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    command = [sys.executable, "-m", "nyala", "serve", "--data", str(tmp_path / "new"), "--http-port", str(number)]
    done = subprocess.run(
        [*command, "--listen", f"grpc://127.0.0.1:{number}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode and "the port is in use" in done.stderr
    assert not (tmp_path / "new").exists()


def test_the_log_names_what_failed_and_cannot_be_filled(tmp_path: Path) -> None:
    with Process(tmp_path) as served:
        host, number = served.http.removeprefix("http://").rsplit(":", 1)
        for line in (b"nonsense", b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket"):
            for _ in range(50):
                with socket.create_connection((host, int(number)), timeout=20) as some:
                    some.sendall(line + b"\r\n\r\n")
                    assert some.recv(1)
        status, text = ask(served.http + "/console/table?name=castles")
        assert status == 404
        (request_id,) = re.findall("Request ([0-9a-f]+)", text)
        served.process.send_signal(signal.SIGTERM)
        _, log = served.process.communicate(timeout=30)
    (line,) = (line for line in log.splitlines() if request_id in line)
    assert "NOT_FOUND" in line
    assert len(log.splitlines()) < 20, log


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['uvicorn'] = None; from nyala.__main__ import main; main()"
    command = [sys.executable, "-c", hidden, "serve", "--data", str(tmp_path), "--http-port", "0"]
    done = subprocess.run([*command, "--listen", "grpc://127.0.0.1:0"], capture_output=True, text=True, timeout=60)
    assert done.returncode and "pip install 'nyala[http]'" in done.stderr, done.stderr


def children(served: Process) -> list[int]:
    tasks = Path(f"/proc/{served.process.pid}/task").glob("*/children")
    return sorted(int(number) for task in tasks for number in task.read_text().split())


def test_processes_that_do_not_answer_hold_nobody_up(tmp_path: Path) -> None:
    with Process(tmp_path, "--processes", "2") as served:
        with nyala.connect(served.location) as db:
            parts = [nyala.hash("id", buckets=4)]
            homes = db.create_table("homes", SCHEMA, primary_key=["id"], partition_by=parts)
            homes.insert([{"id": number, "city": "Oslo", "price": 1.0} for number in range(100)])
            assert datetime_of(homes.last_change()).strftime("%H:%M:%S UTC") in ask(served.http + "/console")[1]
        stopped = children(served)[-1]
        os.kill(stopped, signal.SIGSTOP)
        try:
            with ThreadPoolExecutor(8) as many:
                asked = {
                    path: many.submit(ask, served.http + path)
                    for path in ("/console", "/readyz", "/metrics", "/console/activity", "/healthz")
                }
                found = {path: answer.result() for path, answer in asked.items()}  # each in less than 20 seconds
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert {path: status for path, (status, _) in found.items()} == dict.fromkeys(found, 200)
        assert "not available" in found["/console"][1]
        ups = [value for (name, _), value in values_of(found["/metrics"][1]).items() if name == "nyala_process_up"]
        assert sorted(ups) == [0, 1]
        until(lambda: "not available" not in ask(served.http + "/console")[1])
        assert served.stop() == 0


def up(served: Process) -> float:
    values = values_of(ask(served.http + "/metrics")[1])
    return sum(value for (name, _), value in values.items() if name == "nyala_process_up")


def test_one_port_shows_all_processes_of_a_store(tmp_path: Path) -> None:
    with Process(tmp_path, "--processes", "2") as served:
        with nyala.connect(served.location) as db:
            parts = [nyala.hash("id", buckets=4)]
            homes = db.create_table("homes", SCHEMA, primary_key=["id"], partition_by=parts)
            homes.insert([{"id": number, "city": "Oslo", "price": 1.0} for number in range(100)])
            assert all(homes.get(number) for number in range(40))
        text = ask(served.http + "/metrics")[1]
        values = values_of(text)
        assert text.count("# TYPE nyala_request_seconds histogram") == 1
        for process in ("p0", "p1"):
            assert of(values, "nyala_process_up", process=process) == 1
            assert of(values, "nyala_request_seconds_count", process=process, verb="session_get") > 0
            assert of(values, "process_resident_memory_bytes", process=process) > 1 << 20
        rows = [of(values, "nyala_table_rows", process=process, table="homes") for process in ("p0", "p1")]
        assert sum(rows) == 100 and all(rows)
        assert of(values, "process_resident_memory_bytes", process="") > 1 << 20
        assert ask(served.http + "/readyz") == (200, '{"status":"ready"}')
        child = children(served)[0]
        os.kill(child, signal.SIGSTOP)
        os.kill(child, signal.SIGKILL)
        until(lambda: up(served) < 2)
        assert ask(served.http + "/readyz")[0] == 200
        assert served.stop() == 0
