"""A stream that is one commit: all of it or nothing, whatever becomes of the client."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.flight_server.settings.config import ServerConfig
from nyala.schemas.protocol.service import StoreService
from tests.flight_server.served import SCHEMA, Served, code_of


class Stream:
    """A client's open stream."""

    def __init__(self, served: Served, **command: Any) -> None:
        body = {"table": "homes", "op": "insert", "commit": "stream", **command}
        descriptor = fl.FlightDescriptor.for_command(json.dumps(body))
        self.writer, self.reader = served.client.do_put(descriptor, SCHEMA)

    def send(self, *batches: pa.RecordBatch) -> Stream:
        for batch in batches:
            self.writer.write_batch(batch)
        return self

    def commit(self, rows: int, **more: Any) -> dict[str, Any]:
        self.writer.write_metadata(json.dumps({"commit": True, "rows": rows, **more}).encode())
        self.writer.done_writing()
        answer = self.reader.read()
        self.writer.close()  # raises what was refused
        return json.loads(answer.to_pybytes())

    def refusal(self, message: bytes | None) -> str:
        """The code with which the stream ends after ``message``."""
        with pytest.raises(fl.FlightError) as caught:
            if message is not None:
                self.writer.write_metadata(message)
            self.writer.done_writing()
            self.reader.read()
            self.writer.close()
        return code_of(caught.value)


def test_a_stream_is_one_commit(served: Served) -> None:
    before = served.action("now")["timestamp"]
    answer = Stream(served).send(served.rows(3), served.rows(2, start=3)).commit(5)
    assert (answer["rows"], answer["applied"], answer["seq"]) == (5, 5, None)
    assert served.ids() == [0, 1, 2, 3, 4]
    at_commit = {"table": "homes", "as_of": answer["timestamp"]}
    assert served.get(at_commit).num_rows == 5
    assert served.get({**at_commit, "as_of": answer["timestamp"] - 1}).num_rows == 0
    assert answer["timestamp"] > before


def test_errors_count_rows_from_the_start_of_the_stream(served: Served) -> None:
    served.put("homes", served.rows(1, start=3))
    answer = Stream(served).send(served.rows(2), served.rows(3, start=2)).commit(5)
    assert [(error["row"], error["code"]) for error in answer["errors"]] == [(3, "ALREADY_PRESENT")]
    assert answer["applied"] == 4


def test_nothing_is_there_before_the_commit(served: Served) -> None:
    stream = Stream(served).send(served.rows(3))
    assert served.ids() == []
    assert stream.commit(3)["applied"] == 3


@pytest.mark.parametrize(
    "message",
    [None, b'{"commit":true,"rows":4}', b'{"commit":true}', b'{"commit":false,"rows":3}', b"bye", b"{}"],
    ids=["no message", "wrong count", "no count", "not true", "not JSON", "nothing said"],
)
def test_a_stream_that_is_not_committed_leaves_nothing(served: Served, message: bytes | None) -> None:
    assert Stream(served).send(served.rows(3)).refusal(message) == "INVALID_ARGUMENT"
    assert served.ids() == []


def test_an_empty_stream_may_be_committed(served: Served) -> None:
    assert Stream(served).commit(0)["rows"] == 0


def test_nothing_may_follow_the_commit(served: Served) -> None:
    stream = Stream(served).send(served.rows(1))
    stream.writer.write_metadata(b'{"commit":true,"rows":1}')
    assert json.loads(stream.reader.read().to_pybytes())["applied"] == 1
    stream.send(served.rows(1, start=5))
    assert stream.refusal(None) == "INVALID_ARGUMENT"
    assert served.ids() == [0]


def test_a_stream_that_is_too_large_leaves_nothing(store: StoreService, serve: Callable[..., Served]) -> None:
    served = serve(store, ServerConfig(batch_bytes_max=10_000))
    with pytest.raises(fl.FlightError) as caught:
        stream = Stream(served)
        for part in range(50):
            stream.send(served.rows(100, start=100 * part))
        stream.commit(5000)
    assert code_of(caught.value) == "INVALID_ARGUMENT" and "10,000 bytes" in str(caught.value)
    assert served.ids() == []


def test_all_streams_together_stay_below_a_limit(store: StoreService, serve: Callable[..., Served]) -> None:
    served = serve(store, ServerConfig(staged_bytes_max=10_000))
    first = Stream(served).send(served.rows(200))
    while not served.server.admission.staged._taken:  # sent is not received
        time.sleep(0.001)
    for _ in range(3):  # what a refused stream held is free again
        second = Stream(served).send(served.rows(200, start=1000))
        assert second.refusal(b'{"commit":true,"rows":200}') == "UNAVAILABLE"
    assert first.commit(200)["applied"] == 200
    assert Stream(served).send(served.rows(200, start=1000)).commit(200)["applied"] == 200


def test_batches_are_answered_where_no_thread_can_start(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused = threading.Thread.start, list[str]()

    def fail(self: threading.Thread) -> None:
        if self.name == "nyala-answers":
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", fail)
    command = {"table": "homes", "op": "insert", "writer": "w"}
    numbers = tuple(b'{"seq": %d}' % seq for seq in range(3))
    answers = served.put(command, *(served.rows(2, start=2 * seq) for seq in range(3)), metadata=numbers)
    assert [(answer["seq"], answer["applied"]) for answer in answers] == [(0, 2), (1, 2), (2, 2)]
    assert served.ids() == list(range(6))
    assert len(refused) >= 2
