"""A child process that runs statements, one at a time, over the private port of its server.

It ends when its server ends. The server kills it if a statement does not end in time: nothing else ends a join.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...clients.flight.credentials import Credentials
from ...clients.flight.store import FlightStore
from ...clients.sql.change.conflicts import Turns
from ...clients.sql.engine import SqlEngine
from ...clients.sql.fences import SqlLimits
from ...clients.sql.session import SqlSession
from ...schemas.cells.json_text import Steps, read_by
from ...schemas.errors import InternalError, StoreError, UnavailableError
from ...schemas.protocol.request import Request, serving
from ..errors.errors import told
from ..handlers.message_split import cut
from ..settings.config import ServerConfig
from .channel import Channel, ChannelClosedError, ChannelFrame, FrameKind

_LOG = logging.getLogger("nyala.flight_server")
_USERS_MAX = 8
_CHECK_SECONDS = 0.1
_OOM_SCORE = Path("/proc/self/oom_score_adj")


@dataclass(slots=True)
class _User:
    """What the child has for one caller."""

    store: FlightStore
    engine: SqlEngine
    sessions: dict[str, Any] = field(default_factory=dict)


class _ServersTurns(Turns):
    """Turns on tables among all children of a server, which gives them."""

    def __init__(self, channel: Channel, check: Callable[[], None]) -> None:
        super().__init__()
        self._channel = channel
        self._check = check
        self.granted = threading.Event()
        self.tables: list[Hashable] = []
        """On which somebody had the turn when the statement came."""

    def is_awaited(self, table: Hashable) -> bool:
        return table in self.tables

    @contextmanager
    def turn(self, table: Hashable) -> Iterator[None]:
        self.granted.clear()
        self._channel.send_json(FrameKind.TURN, table=table)
        while not self.granted.wait(_CHECK_SECONDS):
            self._check()
        yield  # it ends with the statement


class StatementChild:
    """The child process of Flight SQL: runs the statements that come over a channel."""

    def __init__(self, channel: Channel, location: str, limits: SqlLimits, config: ServerConfig) -> None:
        self._channel = channel
        self._location = location
        self._limits = limits
        self._config = config
        self._users: OrderedDict[str, _User] = OrderedDict()
        self._requests: queue.SimpleQueue[tuple[dict[str, Any], pa.Table | None]] = queue.SimpleQueue()
        self._is_cancelled = threading.Event()
        self._turns = _ServersTurns(channel, self._check)

    def run(self) -> None:
        """Answer requests until the server ends. Queries of the main thread would have one more thread each, so that
        Ctrl-C ends them; nobody types here."""
        threading.Thread(target=self._answer_all, name="nyala-statements", daemon=True).start()
        self._receive()

    def _answer_all(self) -> None:
        while True:
            request, parameters = self._requests.get()
            self._answer(request, parameters)

    def _receive(self) -> None:
        try:
            while True:
                request = self._channel.receive().json()
                if request["op"] == "cancel":
                    self._is_cancelled.set()
                    continue
                if request["op"] == "turn":
                    self._turns.granted.set()
                    continue
                parameters = _table(self._channel.receive()) if request.get("has_parameters") else None
                self._is_cancelled.clear()
                self._turns.tables = request["awaited"]
                self._requests.put((request, parameters))
        except ChannelClosedError:
            os._exit(0)  # a statement may run, which nothing else ends

    def _answer(self, request: dict[str, Any], parameters: pa.Table | None) -> None:
        try:
            with serving(Request("", self._check, check_elsewhere=self._check)):
                end = getattr(self, f"_{request['op']}")(request, parameters)
            self._channel.send_json(FrameKind.END, **(end or {}))
        except ChannelClosedError:
            os._exit(0)
        except StoreError as error:
            self._channel.send_json(FrameKind.FAILURE, **told(error))
        except BaseException:  # a panic of Rust is no Exception; without an answer the client would wait
            _LOG.exception("a statement has failed")
            self._channel.send_json(FrameKind.FAILURE, **told(InternalError("the statement has failed: see the log")))

    def _check(self) -> None:
        if self._is_cancelled.is_set():
            raise UnavailableError("the statement was cancelled")

    def _describe(self, request: dict[str, Any], parameters: pa.Table | None) -> dict[str, Any]:
        values = next(_rows(parameters), None) if parameters is not None else None
        described = self._user(request["token"]).engine.describe(request["text"], values)
        if described.schema is not None:
            self._channel.send(FrameKind.SCHEMA, described.schema.serialize())
        for batch in described.rows or ():
            self._channel.send(FrameKind.BATCH, batch.serialize())
        return {
            "is_whole": described.rows is not None,
            "changes": described.schema is None,
            "varies": described.varies,
            "parameters": described.parameters.serialize().to_pybytes().hex(),
        }

    def _run(self, request: dict[str, Any], parameters: pa.Table | None) -> dict[str, Any]:
        """Run a statement, once for each row of its parameters."""
        user = self._user(request["token"])
        runner = user.sessions[request["session"]] if "session" in request else user.engine
        if parameters is not None and parameters.num_rows > 1:
            whole = runner.insert_all(request["text"], parameters)
            if whole is not None:
                return {"changed": whole.changed}
        run = runner.sql if isinstance(runner, SqlSession) else runner.query
        changed, is_first = None, True
        for values in [None] if parameters is None else _rows(parameters):
            with run(request["text"], values) as result:
                if (count := result.changed) is not None:
                    changed = (changed or 0) + count
                    continue
                if is_first:
                    self._channel.send(FrameKind.SCHEMA, result.schema.serialize())
                    is_first = False
                for batch in cut(iter(result), self._config):
                    self._check()
                    self._channel.send(FrameKind.BATCH, batch.serialize())
        return {} if changed is None else {"changed": changed}

    def _begin(self, request: dict[str, Any], _: pa.Table | None) -> None:
        """Begin a transaction."""
        user = self._user(request["token"])
        session = user.sessions[request["session"]] = SqlSession(user.engine)
        session.sql("BEGIN").close()

    def _end(self, request: dict[str, Any], _: pa.Table | None) -> None:
        """End a transaction."""
        session = self._user(request["token"]).sessions.pop(request["session"])
        with closing(session):
            session.sql("COMMIT" if request["commit"] else "ROLLBACK").close()

    def _user(self, token: str) -> _User:
        user = self._users.get(token)
        if user is None:
            store = FlightStore(self._location, retries=False, credentials=Credentials(token=token))
            user = self._users[token] = _User(store, SqlEngine(store, self._limits, self._turns))
            if len(self._users) > _USERS_MAX:
                idle = next(
                    (name for name, each in self._users.items() if not each.sessions and each is not user), None
                )
                if idle is not None:
                    self._users.pop(idle).store.close()
        self._users.move_to_end(token)
        return user


def _rows(parameters: pa.Table) -> Iterator[list[pa.Scalar]]:
    for row in range(parameters.num_rows):
        yield [column[row] for column in parameters.columns]


def _table(frame: ChannelFrame) -> pa.Table:
    return pa.ipc.open_stream(frame.body).read_all()


def _by_kernels(texts: pa.Array, steps: Steps, is_text: bool) -> pa.Array:
    """Read values of JSON as the engine does, which most statements need not load."""
    from ...engine.vectors.json_text import json_values

    return json_values(texts, steps, is_text)


def main() -> None:
    """Run a child process for SQL statements: its first frame says where the private port is, and what statements may
    take."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    options = json.loads(channel.receive().body.to_pybytes())
    if _OOM_SCORE.exists():
        _OOM_SCORE.write_text("1000")  # this process goes before its server does
    config = ServerConfig(**options["config"])
    read_by(_by_kernels)
    child = StatementChild(channel, options["location"], SqlLimits(**options["limits"]), config)
    channel.send_json(FrameKind.END)
    child.run()


if __name__ == "__main__":
    main()
