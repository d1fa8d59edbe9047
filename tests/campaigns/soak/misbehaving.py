"""Clients that break off, send nonsense, or ask for what they may not have; each must be answered as it should be."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.flight as fl

from tests.campaigns.soak.clients import Client
from tests.campaigns.soak.rows import SCHEMA, TABLE, OwnRows

_STRANGER = 900
"""A writer of whose rows none is ever committed."""


class Misbehaver(Client):
    """One thing that is wrong after the other, each with a connection of its own."""

    pause_seconds = 0.5

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def step(self) -> None:
        ways = (
            self._leaves_a_scan,
            self._leaves_a_write,
            self._idles,
            self._shows_a_wrong_token,
            self._reads_what_it_may_not,
            self._asks_nonsense,
            self._sends_a_wrong_batch,
            self._speaks_no_tls,
        )
        self.random.choice(ways)()

    def _leaves_a_scan(self) -> None:
        with closing(self.access.own_client()) as client:
            reader = client.do_get(fl.Ticket(_ticket()), self.access.options(self.access.worker))
            with suppress(StopIteration):  # there are no rows yet
                reader.read_chunk()
            if self.random.random() < 0.5:
                reader.cancel()

    def _leaves_a_write(self) -> None:
        """Send rows that are to be one commit, and end without saying so: nothing of them may appear."""
        command = json.dumps({"table": TABLE, "op": "upsert", "commit": "stream"})
        with closing(self.access.own_client()) as client:
            writer, _ = client.do_put(
                fl.FlightDescriptor.for_command(command), SCHEMA, self.access.options(self.access.worker)
            )
            stranger = OwnRows(_STRANGER, 1_000)
            writer.write_batch(stranger.written(stranger.all()))
            if self.random.random() < 0.5:
                self._must_fail("INVALID_ARGUMENT", writer.close)

    def _idles(self) -> None:
        with closing(self.access.own_client()) as client:
            options = self.access.options(self.access.worker)
            streams = [client.do_get(fl.Ticket(_ticket()), options) for _ in range(3)]
            time.sleep(self.random.uniform(0, 2))
            del streams

    def _shows_a_wrong_token(self) -> None:
        with closing(self.access.own_client()) as client:
            options = self.access.options(self.access.worker[:-4] + "AAAA")
            self._must_fail("UNAUTHENTICATED", lambda: list(client.do_action(fl.Action("now", b""), options)))

    def _reads_what_it_may_not(self) -> None:
        with closing(self.access.own_client()) as client:
            options = self.access.options(self.access.reader)
            for asked in ({"columns": ["text"]}, {"columns": ["number"], "where": "text = '0-0'"}):
                ticket = fl.Ticket(_ticket(**asked))
                self._must_fail("PERMISSION_DENIED", lambda ticket=ticket: client.do_get(ticket, options).read_all())

    def _asks_nonsense(self) -> None:
        with closing(self.access.own_client()) as client:
            options = self.access.options(self.access.worker)
            for where in ("number = ", "nowhere = 1", "number in (" + ",".join(map(str, range(200_000))) + ")"):
                ticket = fl.Ticket(_ticket(where=where))
                self._must_fail("INVALID_ARGUMENT", lambda ticket=ticket: client.do_get(ticket, options).read_all())

    def _sends_a_wrong_batch(self) -> None:
        text = pa.StringArray.from_buffers(1, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff"))
        columns = pa.array([_STRANGER], pa.int16()), pa.array([1], pa.int32()), pa.array([1], pa.int32()), text
        batch = pa.record_batch(list(columns), schema=SCHEMA)
        with closing(self.access.own_client()) as client:
            options = self.access.options(self.access.worker)
            writer, _ = client.do_put(fl.FlightDescriptor.for_path(TABLE), SCHEMA, options)
            self._must_fail("INVALID_ARGUMENT", lambda: (writer.write_batch(batch), writer.close()))

    def _speaks_no_tls(self) -> None:
        at = urlsplit(self.access.url)
        with suppress(OSError), socket.create_connection((at.hostname, at.port), timeout=5) as connection:
            connection.sendall(self.random.randbytes(self.random.randrange(1, 2_000)))
            connection.recv(100)

    def _must_fail(self, code: str, ask: Callable[[], object]) -> None:
        try:
            with self.report.timed("refusal"):
                ask()
        except (fl.FlightError, pa.ArrowException, OSError) as error:
            if "UNAVAILABLE: " in str(error):  # another one is at it; it would say the same to an honest client
                self.report.notes.append("what must fail was told to come again")
            else:
                assert f"{code}: " in str(error), f"{code} was expected, not {error}"
            return
        raise AssertionError(f"{code} was expected, but the request succeeded")


def _ticket(**more: object) -> bytes:
    return json.dumps({"table": TABLE, **more}).encode()
