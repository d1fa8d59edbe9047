"""Gets that a session answers without the interpreter: they say what others would, count, and end when they must."""

from __future__ import annotations

import ctypes
import json
import mmap
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import nyala
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.handlers.kept_gets import KeptGets
from nyala.flight_server.native import session_hook
from nyala.flight_server.native.library import Library, Memory
from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.session import request
from nyala.schemas.rows.operation import Operation
from nyala.schemas.rows.write import WriteCommand
from nyala.schemas.table.table import TableDefinition
from tests.doubles.waiting import until
from tests.flight_server.guarded import Guarded
from tests.flight_server.raw_session import Session, error_code, row_line
from tests.flight_server.served import SCHEMA, Served

pytestmark = pytest.mark.usefixtures("ended")
GET = {"get": "homes"}


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


def answers_of(served: Served) -> Any:
    store = served.store
    assert isinstance(store, Store)
    kept = store.kept_answers()
    assert kept is not None
    return kept[0]


def ask_often(session: Session, key: list[Any], times: int = 10) -> list[dict[str, Any]]:
    return [session.ask(GET, {"key": key}) for _ in range(times)]


def kept(served: Served, session: Session, key: list[Any]) -> dict[str, Any]:
    """The answer to a get that is given without the interpreter."""
    before = answers_of(served).hits
    answers = ask_often(session, key)
    assert all(answer == answers[0] for answer in answers)
    assert answers_of(served).hits > before
    return answers[0]


def count_of(served: Served, name: str, **labels: str) -> float:
    families = served.action("metrics")["families"]
    found = next(each for each in families if each["name"] == name)
    sample = next(each for each in found["samples"] if labels.items() <= each.get("labels", {}).items())
    return sum(sample["counts"]) if sample.get("counts") else sample["value"]


def test_gets_of_a_row_are_the_same_and_are_counted(homes: Served, session: Session) -> None:
    first = session.ask(GET, {"key": [3]})
    assert first["row"] == {"id": 3, "city": "city 3", "price": 3.0}
    sent = count_of(homes, "nyala_sent_bytes")
    before = answers_of(homes).hits
    assert ask_often(session, [3], 50) == [first] * 50
    hits = answers_of(homes).hits - before
    assert hits > 0
    assert count_of(homes, "nyala_request_seconds", verb="session_get") == 51
    assert count_of(homes, "nyala_kept_answers") == answers_of(homes).hits
    assert count_of(homes, "nyala_sent_bytes") - sent >= 50 * len(json.dumps(first, separators=(",", ":")))


def test_a_row_that_is_not_there_is_not_kept(homes: Served, session: Session) -> None:
    assert ask_often(session, [99])[0]["row"] is None
    assert answers_of(homes).hits == 0
    session.ask(row_line(), {"row": [99, "new", 1.0]})
    assert session.ask(GET, {"key": [99]})["row"]["city"] == "new"


def test_a_write_in_the_session_is_read_by_the_next_get(homes: Served, session: Session) -> None:
    for round_ in range(30):
        kept(homes, session, [3])
        assert session.ask(row_line(), {"row": [3, f"city of {round_}", 1.0]})["applied"] == 1
        assert session.ask(GET, {"key": [3]})["row"]["city"] == f"city of {round_}"


def test_a_write_of_another_session_is_read_by_the_next_get(homes: Served, session: Session) -> None:
    other = Session(homes.client)
    for round_ in range(30):
        kept(homes, session, [3])
        assert other.ask(row_line(), {"row": [3, f"city of {round_}", 1.0]})["applied"] == 1
        assert session.ask(GET, {"key": [3]})["row"]["city"] == f"city of {round_}"
        kept(homes, session, [4])


def test_gets_come_after_the_writes_before_them(homes: Served, session: Session) -> None:
    kept(homes, session, [4])
    for round_ in range(30):
        for _ in range(5):
            session.send(row_line(), {"row": [3, f"city of {round_}", 1.0], "more": True})
        session.send(GET, {"key": [4]})
        session.send(GET, {"key": [3]})
        assert all(session.answer()[0]["applied"] == 1 for _ in range(5))
        assert session.answer()[0]["row"]["city"] == "city 4"
        assert session.answer()[0]["row"]["city"] == f"city of {round_}"


def test_many_requests_at_once_are_answered_in_order(homes: Served, session: Session) -> None:
    for key in range(20):
        session.ask(GET, {"key": [key]})
    for key in range(20):
        session.send(GET, {"key": [key]})
    assert [session.answer()[0]["row"]["id"] for _ in range(20)] == list(range(20))
    assert answers_of(homes).hits > 0


def test_a_client_that_does_not_wait_is_answered_by_the_interpreter(homes: Served, session: Session) -> None:
    kept(homes, session, [3])

    def is_seen() -> bool:
        for _ in range(500):
            session.send(GET, {"key": [3]})
        assert all(session.answer()[0]["row"]["id"] == 3 for _ in range(500))
        before = answers_of(homes).hits
        ask_often(session, [3])
        return answers_of(homes).hits == before

    assert any(is_seen() for _ in range(30)), "on a busy machine a request may be late"


def test_errors_come_between_kept_answers(homes: Served, session: Session) -> None:
    kept(homes, session, [3])
    assert error_code(session.ask({"get": "none"}, {"key": [3]})) == "NOT_FOUND"
    assert error_code(session.ask(GET, {"key": ["x"]})) == "INVALID_ARGUMENT"
    assert kept(homes, session, [3])["row"]["id"] == 3


def test_a_record_batch_is_still_refused(homes: Served) -> None:
    session = Session(homes.client)
    kept(homes, session, [3])
    writer, reader = homes.client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'))
    writer.begin(homes.rows(1).schema)
    with suppress(fl.FlightError):
        writer.write_batch(homes.rows(1))
    with pytest.raises(fl.FlightError, match="takes only messages without a record batch"):
        reader.read_chunk()


def test_an_alteration_is_seen_by_the_next_get(homes: Served, session: Session) -> None:
    assert kept(homes, session, [3])["schema_version"] == 1
    with nyala.connect(homes.url) as database:
        database.table("homes").alter().add_column("more", pa.int64()).apply()
    later = kept(homes, session, [3])
    assert later["row"] == {"id": 3, "city": "city 3", "price": 3.0, "more": None}
    assert later["schema_version"] == 2


def test_a_row_is_of_the_version_that_its_answer_names(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the description of the table and the read, a column is widened, and then another table has the name."""
    served = Served(store)
    read = KeptGets.row

    def after(work: Callable[[], object]) -> None:
        def once(self: KeptGets, about: Any, key: Any) -> Any:
            monkeypatch.setattr(KeptGets, "row", read)
            work()
            return read(self, about, key)

        monkeypatch.setattr(KeptGets, "row", once)

    with nyala.connect(served.url) as db, nyala.connect(served.url) as admin:
        key = pa.field("k", pa.int64(), nullable=False)
        t = admin.create_table("t", pa.schema([key, ("v", pa.decimal128(4, 2))]), primary_key=["k"])
        other = admin.create_table("other", pa.schema([key, ("v", pa.binary())]), primary_key=["k"])
        t.insert([{"k": 1, "v": Decimal("1.50")}, {"k": 2, "v": None}, {"k": 3, "v": None}])
        other.insert([{"k": 3, "v": b"\x00\xff"}])

        def widen() -> None:
            t.alter().widen_column("v", "decimal(20,2)").apply()
            t.upsert([{"k": 2, "v": Decimal("123456789.50")}])

        def exchange() -> None:
            admin.table("t").alter().rename("old").apply()
            admin.table("other").alter().rename("t").apply()

        assert db.table("t").get(1) == {"k": 1, "v": Decimal("1.50")}
        after(widen)
        assert db.table("t").get(2) == {"k": 2, "v": Decimal("123456789.50")}
        after(exchange)
        assert db.table("t").get(3) == {"k": 3, "v": b"\x00\xff"}
        assert db.table("t").get(1) is None


def test_a_dropped_table_is_not_found(homes: Served, session: Session) -> None:
    kept(homes, session, [3])
    homes.action("drop_table", {"table": "homes"})
    assert error_code(session.ask(GET, {"key": [3]})) == "NOT_FOUND"


def test_long_answers_are_the_interpreters(homes: Served, session: Session) -> None:
    city = "x" * (1 << 14)
    session.ask(row_line(), {"row": [3, city, 1.0]})
    assert all(answer["row"]["city"] == city for answer in ask_often(session, [3]))
    assert (answers_of(homes).hits, answers_of(homes).used_bytes) == (0, 0)


def test_requests_come_to_the_interpreter_again_after_a_while(homes: Served, session: Session) -> None:
    kept(homes, session, [3])
    homes.server.admission.expire()
    with pytest.raises((fl.FlightError, StopIteration, pa.ArrowException)):
        ask_often(session, [3], 1_000_000)


def test_a_pause_does_not_end_a_session(homes: Served, session: Session) -> None:
    kept(homes, session, [3])
    time.sleep(0.3)
    kept(homes, session, [3])


def test_a_client_that_takes_no_answers_is_ended(store: Store, serve: Callable[..., Served]) -> None:
    served = serve(store, ServerConfig(stalled_seconds_max=0.5))
    store.write(
        WriteCommand(table="homes", op=Operation.UPSERT),
        served.rows(5).set_column(1, "city", pa.array(["x" * 16_000] * 5)),
    )
    session = Session(served.client)
    kept(served, session, [3])
    message = request(json.dumps(GET).encode(), b'{"key": [3]}')

    def flood() -> None:
        with suppress(fl.FlightError, pa.ArrowException, OSError):
            for _ in range(100_000):
                session.writer.write_metadata(message)

    sending = threading.Thread(target=flood, daemon=True)
    sending.start()
    until(lambda: served.server.calls.metrics.ended["stalled"] == 1, seconds=30)
    sending.join(30)
    assert not sending.is_alive()
    assert kept(served, Session(served.client), [3])["row"]["id"] == 3


_CLIENT = """
import sys
import pyarrow as pa, pyarrow.flight as fl
client = fl.connect(sys.argv[1])
writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b'{"session":1}'))
writer.begin(pa.schema([]))
while True:
    writer.write_metadata(b'{"get":"homes"}\\n{"key":[3]}\\n')
    assert b'"city 3"' in reader.read_chunk().app_metadata.to_pybytes()
    sys.stdout.write("x")
    sys.stdout.flush()
"""


def test_clients_that_are_killed_leave_the_others_alone(homes: Served, session: Session) -> None:
    for _ in range(4):
        client = subprocess.Popen([sys.executable, "-c", _CLIENT, homes.url], stdout=subprocess.PIPE)
        assert client.stdout is not None
        assert client.stdout.read(300)
        kept(homes, session, [3])
        client.kill()
        client.wait()
        client.stdout.close()
    assert kept(homes, session, [3])["row"]["id"] == 3
    session.writer.close()
    until(lambda: not homes.server.calls.running(), seconds=30)
    assert not homes.server.calls.metrics.counting


def test_a_server_stops_beside_sessions_that_are_answered(homes: Served, session: Session) -> None:
    kept(homes, session, [3])
    count = [0]

    def ask() -> None:
        with suppress(fl.FlightError, pa.ArrowException, StopIteration, OSError):
            while True:
                session.ask(GET, {"key": [3]})
                count[0] += 1

    asking = threading.Thread(target=ask)
    asking.start()
    until(lambda: count[0] > 100, seconds=30)
    homes.server.admission.expire()
    homes.server.shutdown()
    asking.join(30)
    assert not asking.is_alive()


def test_sessions_work_without_the_hook(homes: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_hook, "_session_code", lambda: None)
    session = Session(homes.client)
    assert all(answer["row"]["id"] == 3 for answer in ask_often(session, [3]))
    assert answers_of(homes).hits == 0


def test_another_pyarrow_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    session_hook._compiled_code.cache_clear()
    try:
        monkeypatch.setattr(Library, "address", _no_symbol)
        assert session_hook._session_code() is None
    finally:
        session_hook._compiled_code.cache_clear()


def _no_symbol(self: Library, symbol: str) -> int:
    raise LookupError(f"there is no symbol {symbol}")


# Callers with grants


class _Caller:
    def __init__(self, client: fl.FlightClient, token: str) -> None:
        options = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer " + token.encode())])
        self.writer, self.reader = client.do_exchange(
            fl.FlightDescriptor.for_command(b'{"session":1}'), options=options
        )
        self.writer.begin(pa.schema([]))

    def ask(self, key: int = 1) -> dict[str, Any]:
        self.writer.write_metadata(request(b'{"get": "t"}', json.dumps({"key": [key]}).encode()))
        return json.loads(self.reader.read_chunk().app_metadata.to_pybytes().partition(b"\n")[0])


def _code(answer: dict[str, Any]) -> str:
    return answer["error"]["code"] if "error" in answer else "row"


def test_callers_get_what_they_may_read(guarded: Guarded) -> None:
    answers = answers_of(guarded.served)
    admin = _Caller(guarded.served.client, guarded.admin_token)
    user = _Caller(guarded.served.client, guarded.user_token)
    for _ in range(10):
        assert _code(admin.ask()) == "row"
        assert _code(user.ask()) == "NOT_FOUND"
    assert answers.hits > 0
    for _ in range(10):
        guarded.set_grants({"read": frozenset({"k", "a"})})
        assert _code(user.ask()) == "PERMISSION_DENIED"
        guarded.set_grants({"read": frozenset({"k", "a", "b"})})
        before = answers.hits
        assert [_code(user.ask()) for _ in range(5)] == ["row"] * 5
        assert answers.hits > before
        guarded.set_grants({})
        assert _code(user.ask()) == "NOT_FOUND"
        assert _code(admin.ask()) == "row"
    for each in (admin, user):
        each.writer.close()


def gone_memory() -> int:
    with mmap.mmap(-1, mmap.PAGESIZE) as memory:
        first = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(first)
        del first
    return address


def test_memory_that_is_gone_is_read_as_none() -> None:
    with Memory() as memory:
        words = (ctypes.c_uint64 * 2)(7, 8)
        assert memory.word_at(ctypes.addressof(words) + 8) == 8
        address = gone_memory()
        for nowhere in (address, 0, 2, -8, (1 << 64) - 8, 1 << 63):
            assert memory.bytes_at(nowhere, 8) == b"" and memory.word_at(nowhere) == 0


def test_the_way_to_a_stream_passes_memory_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    address = gone_memory()

    class Reader:
        """Words where a reader has those that lead to its stream."""

        __slots__ = ("words",)

    reader: Any = Reader()
    monkeypatch.setattr(session_hook, "word_at", lambda _: address)
    with pytest.raises(LookupError, match="does not lead to its stream"):
        session_hook._way_to_stream(reader, 1)
