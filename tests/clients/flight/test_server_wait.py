"""How long a client waits for a server, or for the next process to have a store: anew for each outage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import pytest

from nyala.clients.flight import server_wait, staging_put
from nyala.clients.flight.put_stream import PutStream
from nyala.clients.flight.server_wait import FOLLOW_SECONDS, ServerWait
from nyala.clients.flight.staging_put import StagingPut
from nyala.schemas.errors import UnavailableError
from nyala.schemas.rows.transaction import StagedBatch, StageResult
from nyala.schemas.rows.write import Stage, WriteCommand

GONE = UnavailableError("the holder is gone")


class Processes:
    """Those of a store, and a clock that only waiting and work move."""

    is_alone = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.looks = 0
        self.has_holder = True
        monkeypatch.setattr(server_wait, "time", self)
        self.wait = ServerWait(lambda: True, True, "the server", follower=self)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def follow(self) -> None:
        self.looks += 1
        if not self.has_holder:
            raise GONE


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    return Processes(monkeypatch)


def test_each_outage_of_a_long_call_is_waited_for(processes: Processes) -> None:
    for outage in range(5):
        processes.wait.wait(GONE)
        assert processes.looks == outage + 1
        processes.sleep(FOLLOW_SECONDS + 1)


def test_a_holder_that_fails_again_at_once_is_not_another_outage(processes: Processes) -> None:
    with pytest.raises(UnavailableError, match=r"gave up on the server after 1\d\.\d s"):
        for _ in range(1_000):
            processes.wait.wait(GONE)
            processes.sleep(0.1)


def test_times_that_a_server_told_leave_the_time_to_look(processes: Processes) -> None:
    for _ in range(20):
        processes.wait.wait(UnavailableError("memory is full", 1.0))
    processes.wait.wait(GONE)
    assert processes.looks == 1


def test_a_process_that_refused_a_write_is_not_asked_why_but_the_next_one_looked_for(processes: Processes) -> None:
    """Also while it still says that it has the store."""
    answers = iter([False, False, True])
    wait = ServerWait(lambda: next(answers), True, "the server", follower=processes)
    wait.wait(UnavailableError("another process has the store", locations=[]))
    assert processes.looks == 3
    read_only = UnavailableError("the store is read-only: the disk failed")
    with pytest.raises(UnavailableError, match="the disk failed"):
        ServerWait(lambda: False, True, "the server", follower=processes).wait(read_only)


@pytest.mark.parametrize("retries", [True, False])
def test_nobody_refuses_what_another_may_have_carried_out(processes: Processes, retries: bool) -> None:
    """A client that is told so must not send a write again that has no number."""

    def is_away() -> None:
        raise UnavailableError("it is a standby, and no process has the store", 0.2, [])

    lost = UnavailableError("the connection broke")
    lost.answer_is_lost = True
    processes.follow = is_away
    wait = ServerWait(lambda: True, retries, follower=processes)
    with pytest.raises(UnavailableError, match="it is a standby") as raised:
        wait.wait(lost)
    assert raised.value.answer_is_lost
    assert (raised.value.locations, raised.value.retry_after_seconds) == (None, None)


@pytest.mark.parametrize("retries", [True, False])
def test_a_call_that_reached_nobody_was_refused_by_all(processes: Processes, retries: bool) -> None:
    def is_away() -> None:
        raise UnavailableError("it is a standby, and no process has the store", locations=[])

    processes.follow = is_away
    wait = ServerWait(lambda: True, retries, follower=processes)
    with pytest.raises(UnavailableError) as raised:
        wait.wait(GONE)
    assert raised.value.locations == [] and not raised.value.answer_is_lost


def test_the_error_names_the_seconds_that_were_waited(processes: Processes) -> None:
    processes.wait.wait(GONE)
    processes.sleep(3_600)
    processes.has_holder = False
    with pytest.raises(UnavailableError, match=r"gave up on the server after 15\.\d s"):
        processes.wait.wait(GONE)


def test_the_error_names_no_time_of_work(processes: Processes) -> None:
    """At a single location, too."""

    def is_back() -> bool:
        if not processes.has_holder:
            raise GONE
        return True

    wait = ServerWait(is_back, True, "the server")
    wait.wait(GONE)
    processes.sleep(3_600)
    processes.has_holder = False
    pauses = sum(server_wait._PAUSES)
    with pytest.raises(UnavailableError, match=rf"gave up on the server after {pauses + 0.1:.1f} s"):
        wait.wait(GONE)
        wait.wait(GONE)


def test_each_part_that_was_staged_begins_the_patience_anew(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_put, "KEPT_BYTES_MAX", 1)
    failing = {4, 9, 14, 19}
    sent: list[int] = []

    class Stream:
        def send_part(self, batches: Any) -> StageResult:
            sent.append(sum(1 for _ in batches))
            processes.sleep(FOLLOW_SECONDS / 5)
            if len(sent) in failing:
                raise GONE
            return StageResult(transaction="x", part="p", rows=1, parts=[], part_rows=[], seconds_to_live=1.0)

        def close(self) -> None: ...

    opened = cast(Callable[..., PutStream], lambda *_: Stream())
    batch = pa.record_batch({"id": [1]})
    command = WriteCommand(table="rows", stage=Stage(transaction="x", part="p"))
    staged = StagingPut(opened, processes.wait).stage(command, batch.schema, [StagedBatch(batch)] * 20)
    assert staged.rows == 20 and len(sent) == 20 + len(failing)
