"""Gets and rows of many sessions that one thread carries out: they say what others would, and end when they must."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.local import LocalReadableFile
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.engine.table.small.row_writes import RowWrites
from nyala.flight_server.handlers.combined_session import CombinedSession
from nyala.flight_server.native.session_hook import _RUNNING
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.session import request
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.crowd import Crowd
from tests.flight_server.guarded import Guarded
from tests.flight_server.raw_session import Session, error_code, row_line, short_scan
from tests.flight_server.served import SCHEMA, Served

pytestmark = pytest.mark.usefixtures("ended")
GET = {"get": "homes"}
SCAN = {"table": "homes", "where": "id >= 3", "ordered": True, "limit": 4}


def line(**command: Any) -> dict[str, Any]:
    return row_line(writer="w", **command)


@pytest.fixture
def store() -> Iterator[Store]:
    with Store.open(MemoryFileSystem(), StoreOptions(maintenance="off")) as opened:
        opened.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
        yield opened


@pytest.fixture
def homes(served: Served, session: Session) -> Served:
    session.write(served.rows(20))
    session.answer()
    return served


@pytest.fixture
def crowd(homes: Served, session: Session, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    crowd = Crowd(homes, monkeypatch)
    yield crowd
    crowd.count(-1)


def row(session: Session, seq: int, key: int, city: str, **command: Any) -> dict[str, Any]:
    return session.ask(line(**command), {"seq": seq, "row": [key, city, 1.0]})


def without_id(answer: dict[str, Any]) -> dict[str, Any]:
    answer.get("error", {}).pop("request_id", None)
    return answer


def count_of(served: Served, name: str, **labels: str) -> float:
    families = served.action("metrics")["families"]
    found = next(each for each in families if each["name"] == name)
    sample = next(each for each in found["samples"] if labels.items() <= each.get("labels", {}).items())
    return sum(sample["counts"]) if sample.get("counts") else sample["value"]


def test_a_request_alone_stays_with_its_session(
    homes: Served, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowd = Crowd(homes, monkeypatch)
    crowd.count(-1)
    for seq in range(20):
        assert row(session, seq, 3, f"city of {seq}")["applied"] == 1
        assert session.ask(GET, {"key": [3]})["row"]["city"] == f"city of {seq}"
    assert (crowd.answers, crowd.returned) == ([], 0)


def test_rows_and_gets_beside_others_are_carried_out_together(homes: Served, session: Session, crowd: Crowd) -> None:
    received, rows = count_of(homes, "nyala_received_bytes"), count_of(homes, "nyala_written_rows")
    for seq in range(1, 31):
        assert row(session, seq, 3, f"city of {seq}")["applied"] == 1
        assert session.ask(GET, {"key": [3]})["row"] == {"id": 3, "city": f"city of {seq}", "price": 1.0}
    assert len(crowd.answers) >= 50, "all but the first of a line"
    assert count_of(homes, "nyala_written_rows") - rows == 30
    assert count_of(homes, "nyala_request_seconds", verb="session_write") == 31
    assert count_of(homes, "nyala_request_seconds", verb="session_get") == 30
    assert count_of(homes, "nyala_received_bytes") - received > 60 * len(request(json.dumps(GET).encode()))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (GET, {"key": ["x"]}),
        (GET, {"key": [1, 2]}),
        (GET, {}),
        (GET, b"{"),
        (GET, b'{"more": 3}'),
        ({"get": "none"}, {"key": [1]}),
        (line(), {"seq": 1, "row": [1]}),
        (line(), {"seq": 1}),
        (line(), {"seq": -1, "row": [1, "x", 1.0]}),
        (line(), {"seq": 1, "row": ["x", "x", 1.0]}),
        (line(), {"seq": 1, "row": [1, "x", {"float": "y"}]}),
        (line(op="insert"), {"seq": 7, "row": [1, "x", 1.0]}),
        (line(op="update"), {"seq": 8, "row": [99, "x", 1.0]}),
        ({"write": {"table": "none", "writer": "w"}, "columns": ["id"]}, {"seq": 1, "row": [1]}),
        (b'{"write": 3}', b""),
        (b'{"get": 3}', b""),
        ({"scan": {"table": "none"}}, b""),
        ({"scan": {"table": "homes", "columns": ["none"]}}, b""),
        ({"scan": {"table": "homes"}, "get": "homes"}, {"key": [3]}),
        (b'{"scan": 3}', b""),
        (b'{"scan": null}', b""),
        (b'{"scan": null, "get": "homes"}', b'{"key": ["x"]}'),
    ],
)
def test_what_is_wrong_is_said_as_ever(first: Any, second: Any, homes: Served, session: Session, crowd: Crowd) -> None:
    crowd.count(-1)
    alone = [without_id(session.ask(first, second)) for _ in range(3)]
    crowd.count(1)
    assert [without_id(session.ask(first, second)) for _ in range(3)] == alone
    assert session.ask(GET, {"key": [3]})["row"]["city"] == "city 3"


def test_a_number_is_written_once_by_whichever_session(homes: Served, session: Session, crowd: Crowd) -> None:
    row(session, 0, 3, "first of its line")
    for seq in range(1, 20):
        sessions = [Session(homes.client) for _ in range(4)]
        for each in sessions:
            each.send(line(op="insert"), {"seq": seq, "row": [100 + seq, "new", 1.0]})
        answers = [each.answer()[0] for each in sessions]
        assert all(answer == answers[0] for answer in answers)
        assert answers[0]["applied"] == 1
        for each in sessions:
            each.writer.close()


def test_many_sessions_read_what_they_wrote(homes: Served, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    row(session, 0, 1, "first")
    crowd = Crowd(homes, monkeypatch)
    crowd.count(-1)
    wrong: list[Any] = []

    def work(number: int) -> None:
        own = Session(homes.client)
        own_line = {"write": {"table": "homes", "writer": f"w{number}"}, "columns": ["id", "city", "price"]}
        for seq in range(150):
            key = 100 * number + seq % 7
            answer = own.ask(own_line, {"seq": seq, "row": [key, f"{number} {seq}", None]})
            there = own.ask(GET, {"key": [key]})
            if answer.get("applied") != 1 or there["row"]["city"] != f"{number} {seq}":
                wrong.append((answer, there))

    workers = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not wrong and not any(worker.is_alive() for worker in workers)
    assert crowd.answers, "some met others"
    queues = [each._queue for each in (homes.server._combining.gets, homes.server._combining.writes)]
    until(lambda: all(queue is not None and not queue._words[_RUNNING] for queue in queues), seconds=10)


def test_scans_beside_others_are_carried_out_together(
    homes: Served, session: Session, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, rows = short_scan(session, SCAN)
    assert rows["id"].to_pylist() == [3, 4, 5, 6]
    scanned = scans_noted(monkeypatch)
    for seq in range(20):
        row(session, seq, 4, f"city of {seq}")
        later, rows = short_scan(session, SCAN)
        assert rows["city"].to_pylist() == ["city 3", f"city of {seq}", "city 5", "city 6"]
        assert later["snapshot"] > first["snapshot"]
    assert scanned, "on a busy machine one may take long, and the session answers the next ones"
    assert count_of(homes, "nyala_request_seconds", verb="session_scan") >= 21


def scans_noted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets an entry for each scan that is carried out by the thread for all."""
    entries: list[int] = []
    scan = CombinedSession.scan

    def note(self: CombinedSession) -> None:
        scan(self)
        entries.append(1)

    monkeypatch.setattr(CombinedSession, "scan", note)
    return entries


def test_a_scan_that_is_long_is_refused_as_ever(
    homes: Served, session: Session, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_scan(session, SCAN)
    scanned = scans_noted(monkeypatch)
    monkeypatch.setattr("nyala.flight_server.handlers.short_scan.BYTES_MAX", 1)
    assert all(session.ask({"scan": SCAN}) == {"large": True} for _ in range(5))
    assert scanned
    monkeypatch.undo()
    assert session.ask(GET, {"key": [3]})["row"]["city"] == "city 3"


def test_long_answers_are_their_sessions(homes: Served, session: Session, crowd: Crowd) -> None:
    city = "x" * (1 << 14)
    session.ask(line(), {"seq": 1, "row": [3, city, 1.0]})
    assert all(session.ask(GET, {"key": [3]})["row"]["city"] == city for _ in range(10))
    assert crowd.returned


@pytest.fixture
def files(tmp_path: Path, serve: Callable[..., Served]) -> Iterator[Served]:
    """A server of a store on a disk, whose rows are in a file, and not in its caches."""
    with Store.open(tmp_path, StoreOptions(maintenance="off")) as store:
        store.create_table(TableDefinition.from_arrow("homes", SCHEMA, ["id"]))
        served = serve(store)
        store.write(WriteCommand(table="homes"), served.rows(20))
        store.maintain("homes", "flush")
        yield served


def test_what_is_on_a_disk_is_read_by_the_thread_of_the_session(files: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(files.client)
    session.ask({"get": "homes"}, {"key": [99]})
    row(session, 1, 100, "new")
    crowd = Crowd(files, monkeypatch)
    readers: set[str] = set()
    read = LocalReadableFile.read_into

    def note(self: LocalReadableFile, offset: int, buffer: Any) -> int:
        count = read(self, offset, buffer)
        readers.add(threading.current_thread().name)
        return count

    monkeypatch.setattr(LocalReadableFile, "read_into", note)
    assert session.ask(GET, {"key": [3]})["row"]["city"] == "city 3"
    assert row(session, 2, 3, "new")["applied"] == 1
    assert readers and not readers & {"nyala-gets", "nyala-rows", "nyala-scans"}
    assert (crowd.answers, crowd.returned) == ([], 2), "the key, and all columns"
    assert session.ask(GET, {"key": [4]})["row"]["city"] == "city 4"
    assert row(session, 3, 4, "new")["applied"] == 1
    assert len(crowd.answers) == 2, "now they are in memory"
    crowd.count(-1)
    session.writer.close()


def test_answers_are_kept_for_as_long_as_a_session_asks(homes: Served, session: Session, crowd: Crowd) -> None:
    store = homes.store
    assert isinstance(store, Store)
    pair = store.kept_answers()
    assert pair is not None

    def are_given_again() -> bool:
        before = pair[0].hits
        for key in range(20):
            session.ask(GET, {"key": [key]})
        return pair[0].hits > before

    until(are_given_again, seconds=30)
    end = time.monotonic() + 0.5  # several times as long as they are given without a look at the session
    while time.monotonic() < end:
        are_given_again()
    session.ask(line(), {"seq": 1, "row": [3, "new", 1.0]})
    assert session.ask(GET, {"key": [3]})["row"]["city"] == "new"
    until(are_given_again, seconds=30)  # on a busy machine a client may seem to be one that does not wait


def test_requests_that_follow_one_another_are_answered_in_order(homes: Served, session: Session, crowd: Crowd) -> None:
    for start in range(0, 60, 6):
        for seq in range(start, start + 5):
            session.send(line(), {"seq": seq, "row": [3, f"city of {seq}", 1.0], "more": seq % 2 == 0})
            session.send(GET, {"key": [3]})
        for seq in range(start, start + 5):
            assert session.answer()[0]["applied"] == 1
            assert session.answer()[0]["row"]["city"] == f"city of {seq}"


def test_a_failure_of_the_thread_is_nobodys(
    homes: Served, session: Session, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: CombinedSession, *_: Any) -> None:
        raise MemoryError

    row(session, 0, 3, "first of its line")
    session.ask(GET, {"key": [3]})
    for name in ("get", "planned_row", "wrote", "scan"):
        with monkeypatch.context() as patch:
            patch.setattr(CombinedSession, name, fail)
            assert row(session, len(name), 3, name)["applied"] == 1
            assert session.ask(GET, {"key": [3]})["row"]["city"] == name
            assert short_scan(session, SCAN)[1].num_rows == 4
    assert crowd.returned


def test_a_stopping_server_leaves_nobody_waiting(homes: Served, session: Session, crowd: Crowd) -> None:
    row(session, 0, 3, "first of its line")
    homes.server.admission.drain()
    assert error_code(row(session, 1, 3, "late")) == "UNAVAILABLE"
    assert error_code(session.ask(GET, {"key": [4]})) == "UNAVAILABLE"


def test_a_server_stops_beside_sessions_that_write(homes: Served, session: Session, crowd: Crowd) -> None:
    count = [0]

    def ask() -> None:
        with suppress(fl.FlightError, pa.ArrowException, StopIteration, OSError):
            while "error" not in row(session, count[0], 3, "new"):
                count[0] += 1

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: count[0] > 100, seconds=30)
    homes.server.admission.expire()
    homes.server.shutdown()
    asking.join(30)
    assert not asking.is_alive()
    assert not {"nyala-gets", "nyala-rows", "nyala-scans"} & {thread.name for thread in threading.enumerate()}
    assert homes.server.admission.running == 0


def test_a_stopping_server_waits_for_the_answer_to_a_row_that_is_written(
    homes: Served, session: Session, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq in range(2):
        row(session, seq, 3, "before")
    has_begun, may_end, write = threading.Event(), threading.Event(), RowWrites.write_each

    def write_late(self: RowWrites, rows: Any) -> Any:
        has_begun.set()
        may_end.wait(30)
        return write(self, rows)

    monkeypatch.setattr(RowWrites, "write_each", write_late)
    session.send(line(), {"seq": 2, "row": [3, "late", 1.0]})
    assert has_begun.wait(30)
    due = homes.server.admission.due
    assert not due.wait(time.monotonic() + 0.1)
    may_end.set()
    assert due.wait(time.monotonic() + 30)
    assert session.answer()[0]["applied"] == 1


def test_a_tablet_that_is_locked_holds_up_no_other_table(homes: Served, session: Session, crowd: Crowd) -> None:
    store = homes.store
    assert isinstance(store, Store)
    store.create_table(TableDefinition.from_arrow("others", SCHEMA, ["id"]))
    (tablet,) = store._catalog.table("homes").tablets
    waiting, rows = Session(homes.client), list[Any]()
    for each, table in ((waiting, "homes"), (session, "others")):
        each.ask({"get": table}, {"key": [100]})
    with tablet.write_lock:
        waiting.send(GET, {"key": [3]})
        asking = threading.Thread(target=lambda: rows.append(session.ask({"get": "others"}, {"key": [3]})["row"]))
        asking.start()
        asking.join(10)
        before = list(rows)
    assert before == [None]
    assert waiting.answer()[0]["row"]["city"] == "city 3"
    assert crowd.returned == 1
    asking.join()
    waiting.writer.close()


def test_each_ring_wakes_the_thread_once(
    homes: Served, session: Session, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, get, pairs = (session, Session(homes.client)), CombinedSession.get, 20
    for each in sessions:
        each.ask(GET, {"key": [100]})

    def get_late(self: CombinedSession) -> None:
        time.sleep(0.01)  # meanwhile the other one rings
        get(self)

    monkeypatch.setattr(CombinedSession, "get", get_late)
    queue = homes.server._combining.gets._queue
    assert queue is not None
    taken, take = list[int](), queue._native.take
    monkeypatch.setattr(queue._native, "take", lambda address: taken.append(take(address)) or taken[-1])
    for key in range(pairs):
        for each in sessions:
            each.send(GET, {"key": [200 + key]})
        for each in sessions:
            assert each.answer()[0]["row"] is None
    assert taken.count(0) < pairs // 4
    sessions[1].writer.close()


def test_a_request_that_the_server_works_for_is_not_stuck(
    store: Store, serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = serve(store, ServerConfig(stalled_seconds_max=0.5, slow_request_seconds=1.0))
    session = Session(served.client)
    row(session, 0, 3, "first of its line")
    row(session, 1, 3, "before")
    crowd = Crowd(served, monkeypatch)
    write = RowWrites.write_each

    def write_late(self: RowWrites, rows: Any) -> Any:
        time.sleep(1.5)
        return write(self, rows)

    monkeypatch.setattr(RowWrites, "write_each", write_late)
    with caplog.at_level(logging.INFO, "nyala.flight_server"):
        assert row(session, 2, 3, "late")["applied"] == 1
    assert len(crowd.answers) == 1
    assert not served.server.calls.metrics.ended["stalled"]
    assert "session took 1." in caplog.text
    crowd.count(-1)
    session.writer.close()


def test_long_requests_are_their_sessions(homes: Served, session: Session, crowd: Crowd) -> None:
    row(session, 0, 3, "first of its line")
    assert error_code(row(session, 1, 3, "x" * 70_000)) == "INVALID_ARGUMENT"
    assert error_code(session.ask(GET, {"key": ["x" * 70_000]})) == "INVALID_ARGUMENT"
    assert row(session, 1, 3, "x" * 30_000)["applied"] == 1
    assert len(crowd.answers) == 1


def test_sessions_do_without_a_thread_that_cannot_start(homes: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(homes.store)
    start = threading.Thread.start

    def fail(self: threading.Thread) -> None:
        if self.name.startswith("nyala-gets"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fail)
    own = Session(served.client)
    assert [own.ask(GET, {"key": [key]})["row"]["id"] for key in range(5)] == list(range(5))
    assert row(own, 1, 3, "new")["applied"] == 1
    own.writer.close()
    served.client.close()
    served.server.shutdown()


def test_sessions_that_end_are_forgotten(homes: Served, session: Session, crowd: Crowd) -> None:
    threads = homes.server._combining
    before = len(threads.gets._sessions)
    for _ in range(5):
        own = Session(homes.client)
        own.ask(GET, {"key": [3]})
        own.ask(GET, {"key": [4]})
        own.writer.close()
    until(lambda: len(threads.gets._sessions) == len(threads.writes._sessions) == before, seconds=30)


class _Writer:
    """A session of a caller with a token."""

    def __init__(self, client: fl.FlightClient, token: str) -> None:
        options = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())])
        self.writer, self.reader = client.do_exchange(
            fl.FlightDescriptor.for_command(b'{"session":1}'), options=options
        )
        self.writer.begin(pa.schema([]))
        self._seq = 0

    def write(self) -> str:
        self._seq += 1
        line = b'{"write": {"table": "t", "writer": "w"}, "columns": ["k", "a", "b"]}'
        self.writer.write_metadata(request(line, json.dumps({"seq": self._seq, "row": [1, 2, "x"]}).encode()))
        answer = json.loads(self.reader.read_chunk().app_metadata.to_pybytes().partition(b"\n")[0])
        return answer["error"]["code"] if "error" in answer else "row"


def test_callers_write_what_they_may(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = _Writer(guarded.served.client, guarded.admin_token)
    user = _Writer(guarded.served.client, guarded.user_token)
    assert (admin.write(), user.write()) == ("row", "NOT_FOUND")
    crowd = Crowd(guarded.served, monkeypatch)
    everything = frozenset({"k", "a", "b"})
    for _ in range(5):
        guarded.set_grants({"read": everything})
        assert user.write() == "PERMISSION_DENIED"
        guarded.set_grants({"insert": everything, "update": everything})
        before = len(crowd.answers)
        assert [user.write() for _ in range(5)] == ["row"] * 5
        assert [admin.write() for _ in range(5)] == ["row"] * 5
        assert len(crowd.answers) > before
    crowd.count(-1)
    for each in (admin, user):
        each.writer.close()
