"""Connections of the HTTP port: what clients that are slow, silent or many, and a slow store, do not hold up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from nyala.flight_server.http import connections, state
from nyala.flight_server.serve import port as http_port
from nyala.flight_server.settings.settings import ServeOptions
from tests.doubles.certificates import Authority
from tests.doubles.waiting import until
from tests.flight_server.http_client import Port


def connected(one: Port, receive_bytes: int | None = None) -> socket.socket:
    """Connect; ``receive_bytes`` is about what the system keeps of answers that are not read."""
    host, number = one.http.url.rpartition("/")[2].rsplit(":", 1)
    client = socket.socket()
    client.settimeout(20)
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.connect((host, int(number)))
    return client


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_connection_has_a_time_for_each_request(
    port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch, earlier: int
) -> None:
    monkeypatch.setattr(connections, "_REQUEST_SECONDS", 0.3)
    with connected(port()) as silent:
        for _ in range(earlier):
            silent.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            while not silent.recv(4096).endswith(b"}"):
                pass
        silent.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert silent.recv(1) == b""


def test_a_handshake_has_a_time(port: Callable[..., Port], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_port, "HANDSHAKE_SECONDS", 0.3)
    authority = Authority(tmp_path)
    pair = authority.server()
    one = port(ServeOptions(tls_cert=pair.certificate, tls_key=pair.key), None)
    with connected(one) as silent, suppress(ConnectionError):
        assert silent.recv(1) == b""


def test_answers_that_nobody_reads_end(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_ANSWER_SECONDS", 0.3)
    one, request = port(), b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with connected(one, receive_bytes=4096) as deaf:
        until(lambda: one.http._server.server_state.connections)
        with suppress(OSError):  # what it has not read when the connection ends
            deaf.sendall(request * 3000)
        until(lambda: not one.http._server.server_state.connections)
        pieces: list[bytes] = []
        with suppress(ConnectionError):
            while piece := deaf.recv(1 << 20):
                pieces.append(piece)
    assert 0 < b"".join(pieces).count(b"HTTP/1.1 200") < 3000


@pytest.mark.parametrize(
    ("name", "status"),
    [("evil.example", 403), ("evil.example:80", 403), ("[", 403), ("", 403), ("LOCALHOST:1", 200), ("[::1]:8816", 200)],
)
def test_a_page_of_somebody_else_may_not_ask(port: Callable[..., Port], name: str, status: int) -> None:
    one = port()
    for path in ("/console", "/console/table?name=homes", "/console/activity", "/metrics"):
        found, text = one.ask(path, host=name)
        assert found == status and ("homes" in text) <= (status == 200)
    assert one.ask("/healthz", host=name)[0] == 200


def test_health_is_answered_however_many_connect(port: Callable[..., Port]) -> None:
    one = port()
    with ExitStack() as opened:
        for _ in range(connections.CONNECTIONS_MAX + 20):
            held = opened.enter_context(connected(one))
            held.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert held.recv(4096).startswith(b"HTTP/1.1 200")
            held.sendall(b"G")
        assert one.ask("/healthz") == (200, '{"status":"alive"}')
        assert one.ask("/readyz") == (200, '{"status":"ready"}')


def test_health_is_answered_while_the_store_is_slow(port: Callable[..., Port], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_READINESS_SECONDS", 0.3)
    monkeypatch.setattr(state, "_TURN_SECONDS", 0.3)
    one = port()
    answering, tables = threading.Event(), type(one.served.store).tables
    healthy = type(one.served.store).health

    def slow(store: Any) -> Any:
        assert answering.wait(60)
        return tables(store)

    def slow_health(store: Any) -> Any:
        assert answering.wait(60)
        return healthy(store)

    monkeypatch.setattr(type(one.served.store), "tables", slow)
    monkeypatch.setattr(type(one.served.store), "health", slow_health)
    with ThreadPoolExecutor(100) as many:
        try:
            pages = [many.submit(one.ask, "/console") for _ in range(50)]
            ready = [many.submit(one.ask, "/readyz") for _ in range(50)]
            assert {each.result(20) for each in ready} == {(503, '{"status":"unresponsive"}')}
            assert one.ask("/healthz") == (200, '{"status":"alive"}')
            stuck = sum(each.result(20)[0] != 503 for each in pages if each.done())
            assert stuck == 0
        finally:
            answering.set()
        assert {each.result(20)[0] for each in pages} == {200, 503}
    assert one.ask("/readyz") == (200, '{"status":"ready"}')
