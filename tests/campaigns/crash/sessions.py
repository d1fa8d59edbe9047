"""Kill -9 a server again and again under clients of sessions that have several numbered writes in flight.

After each kill they open another session and send again what has no answer, in its order. Beside them clients write
rows one by one, and flushes and merges run; half of the tables have the default encodings. In the end the change feed
must show each write once, at the moment of its answer, and nothing else. `embedded` has the same in one process.

    python tests/campaigns/crash/sessions.py --cycles 20 --seed 0
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa
import pyarrow.flight as fl

import nyala
from nyala.schemas.errors import UnavailableError
from tests.campaigns.attack.session_attackers import Session
from tests.campaigns.crash.kill9 import OPTIONS, SCHEMA, Writer, explicit_encodings, main
from tests.campaigns.crash.retries import PatientWriter, RetryCampaign, maintain_until
from tests.campaigns.crash.survivors import FEATURES, Survivor
from tests.campaigns.model.oracle import Key, Plan, Row
from tests.campaigns.options import columns, table

_IN_FLIGHT = 12
_RETRY_SECONDS = 0.05


@dataclass(frozen=True)
class _Sent:
    """A write that has no answer yet."""

    seq: int
    op: str
    batch: pa.RecordBatch
    plan: Plan


class PipelinedWriter(Writer):
    """Keeps several writes in flight on a session, and survives it."""

    @property
    def done(self) -> int:
        return self.acknowledged

    def run_until(self, location: str, stop: threading.Event) -> None:
        """Write until ``stop`` is set and all is answered; the first thing that is wrong becomes ``failure``."""
        self._sent: deque[_Sent] = deque()
        self._next_seq = 0
        try:
            while self._sent or not stop.is_set():
                with (
                    suppress(fl.FlightUnavailableError, pa.ArrowIOError, StopIteration),
                    closing(fl.connect(location)) as client,
                ):
                    self._run_session(Session(client), stop)
                time.sleep(_RETRY_SECONDS)
        except BaseException as error:  # the main thread raises it
            self.failure = error

    def _run_session(self, session: Session, stop: threading.Event) -> None:
        for each in self._sent:
            self._send(session, each)
        while self._sent or not stop.is_set():
            while not stop.is_set() and len(self._sent) < _IN_FLIGHT:
                self._sent.append(self._drawn())
                self._send(session, self._sent[-1])
            self._take(session)

    def _send(self, session: Session, sent: _Sent) -> None:
        session.write(sent.batch, sent.seq, more=True, table="t", op=sent.op, writer=f"pipelined {self.number}")

    def _take(self, session: Session) -> None:
        said = session.answer()
        if said.get("error", {}).get("code") == "UNAVAILABLE":
            raise fl.FlightUnavailableError(said["error"]["message"])
        sent = self._sent[0]
        found = said["rows"], said["applied"], said.get("ignored", 0), said.get("error_count", 0)
        rows, applied, ignored, errors = sent.plan.answer
        assert found == (rows, applied, ignored, len(errors)), (sent, said)
        self.oracle.commit(sent.plan, said["timestamp"])
        self._sent.popleft()
        self.acknowledged += 1

    def _drawn(self) -> _Sent:
        """Return a write of rows that no write in flight has: what becomes of it does not depend on those."""
        op, rows = self.draw()
        busy: set[Key] = {key for each in self._sent for key in each.plan.changes}
        if any((self.number, row["number"]) in busy for row in rows):
            op, rows = "insert", [self._new_row()]
        names = list(rows[0])
        fields = [SCHEMA.field(name) for name in names]
        seq, self._next_seq = self._next_seq, self._next_seq + 1
        return _Sent(seq, op, pa.RecordBatch.from_pylist(rows, pa.schema(fields)), self.oracle.plan(op, rows))

    def _new_row(self) -> Row:
        number, self.next_row = self.next_row, self.next_row + 1
        return {"writer": self.number, "number": number, "batch": self.acknowledged, "text": "alone"}


class LoneRowWriter(PatientWriter):
    """Writes rows one by one, each acknowledged before the next."""

    def draw(self) -> tuple[str, list[Row]]:
        op, rows = super().draw()
        self.next_row -= len(rows) - 1 if op == "insert" else 0
        return op, rows[:1]

    def run_until(self, location: str, stop: threading.Event) -> None:
        try:
            with nyala.connect(location) as database:
                table = database.table("t")
                while not stop.is_set():
                    self._write(table)
        except BaseException as error:  # the main thread raises it
            self.failure = error

    def _write(self, table: nyala.Table) -> None:
        """Write a row under a number, however long the server is gone; a campaign has a limit of its own."""
        op, rows = self.draw()
        plan, named = self.oracle.plan(op, rows), f"lone {self.number}"
        while True:
            with suppress(UnavailableError):
                result = table.write(rows, op, writer=named, seq=self.acknowledged, on_error="return")
                break
        self._take(plan, result)


class SessionCampaign(RetryCampaign):
    """Counts over all cycles."""

    def clients(
        self, database: nyala.Database, location: str, stop: threading.Event, random: Random
    ) -> tuple[Sequence[Survivor], list[Callable[[], None]]]:
        kinds = (PipelinedWriter, PipelinedWriter, LoneRowWriter, LoneRowWriter)
        writers = [kind(number, Random(random.random())) for number, kind in enumerate(kinds)]
        self._writers = writers
        options = explicit_encodings(SCHEMA) if random.random() < 0.5 else OPTIONS
        database.create_table("t", SCHEMA, ["writer", "number"], (), columns(SCHEMA, options), **table())
        self._start = database.now()
        work: list[Callable[[], None]] = [partial(each.run_until, location, stop) for each in writers]
        return writers, [*work, partial(maintain_until, location, stop, Random(random.random()))]


if __name__ == "__main__":
    main(SessionCampaign, FEATURES)
