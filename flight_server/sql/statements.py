"""SqlStatements: runs the statements of all callers in child processes, and keeps the transactions that are open."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...clients.sql.change.conflicts import Turns
from ...schemas.errors import StoreError, UnavailableError
from ..requests.calls import Call
from .answers import StatementDescription
from .channel import ChannelFrame, FrameKind
from .folder import new_folder
from .handles import TRANSACTION_SECONDS, TRANSACTIONS_MAX, Handles, OpenTransaction
from .owner import Owner
from .places import SqlPlaces
from .private_port import PrivatePort
from .statement_child import ChildHandle

if TYPE_CHECKING:
    from ..server import FlightServer

PAUSE_SECONDS = 10.0
"""How long a stream is silent at most: proxies end those that are silent for longer."""


@dataclass(eq=False, slots=True)
class _Run:
    """One run of a statement."""

    owner: Owner
    is_cancelled: bool = False


class SqlStatements:
    """Runs the statements of Flight SQL in child processes, for all callers. Thread safe."""

    def __init__(self, server: FlightServer) -> None:
        """Start the first child. ``server`` need not listen yet."""
        self._config = config = server.config
        self._folder = new_folder()
        self._transactions: Handles[OpenTransaction] = Handles("transaction", TRANSACTIONS_MAX)
        self._turns = Turns()
        self._running: dict[bytes, list[_Run]] = {}
        """The statements that run, by the names by which they can be cancelled."""
        self._running_lock = threading.Lock()
        self._port = PrivatePort(server, self._folder / "socket")
        self._places = SqlPlaces(
            self._start, config.sql_places, config.user_share, config.waiting_max, config.sql_timeout_seconds
        )
        self._places.start_one()
        self._stopped = threading.Event()
        threading.Thread(target=self._roll_back_idle, name="nyala-sql-transactions", daemon=True).start()

    def close(self) -> None:
        """End all statements."""
        self._stopped.set()
        self._places.close()
        self._port.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)

    def frames(
        self,
        call: Call,
        op: str,
        text: str,
        transaction: bytes | None,
        parameters: bytes | None,
        pause_seconds: Callable[[], float] = lambda: PAUSE_SECONDS,
        handle: bytes = b"",
    ) -> Iterator[ChannelFrame | None]:
        """Run a statement in a child and yield the frames of its answer: see ``ChildHandle.frames``. ``handle`` is the
        name by which it can be cancelled."""
        owner = owner_of(call)
        held = self._transactions.get(transaction, owner) if transaction else None
        request = {"op": op, "text": text} | ({"session": transaction.hex()} if transaction else {})

        with self._run_of(handle, owner) as run, held.in_use() if held else nullcontext():

            def check() -> None:
                call.check()
                if run.is_cancelled:
                    raise UnavailableError("the statement was cancelled")

            with self._places.taken(owner.user, check, text, held.child if held else None) as child:
                token = child.token_of(owner)
                if transaction:
                    self._transactions.get(transaction, owner)  # it may have ended meanwhile
                with self._port.tokens.lent(token, call.identity):
                    seconds = self._config.sql_timeout_seconds
                    yield from child.frames({**request, "token": token}, parameters, check, seconds, pause_seconds)

    @contextmanager
    def _run_of(self, handle: bytes, owner: Owner) -> Iterator[_Run]:
        """Let the body be a run of a statement. A prepared one may run several times at once. A run without a
        handle cannot be cancelled."""
        run = _Run(owner)
        if not handle:
            yield run
            return
        with self._running_lock:
            self._running.setdefault(handle, []).append(run)
        try:
            yield run
        finally:
            with self._running_lock:
                runs = self._running[handle]
                runs.remove(run)
                if not runs:
                    del self._running[handle]

    def described(
        self, text: str, transaction: bytes | None, call: Call, parameters: bytes | None = None
    ) -> StatementDescription:
        """Return what a child says of a statement, which it does not run."""
        schema, batches, end = None, [], {}
        for frame in self.frames(call, "describe", text, transaction, parameters):
            if frame is None:
                continue
            if frame.kind is FrameKind.SCHEMA:
                schema = pa.ipc.read_schema(frame.body)
            elif frame.kind is FrameKind.BATCH:
                batches.append(pa.ipc.read_record_batch(frame.body, schema))
            else:
                end = frame.json()
        rows = pa.Table.from_batches(batches, schema) if end.get("is_whole") else None
        fields = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(end["parameters"])))
        return StatementDescription(schema, fields, end["varies"], rows)

    def changed(self, text: str, transaction: bytes | None, parameters: bytes | None, call: Call) -> int:
        """Run a change. Return the number of its rows; -1: it has none."""
        count = -1
        for frame in self.frames(call, "run", text, transaction, parameters):
            if frame is not None and frame.kind is FrameKind.END:
                count = frame.json().get("changed", -1)
        return count

    def cancel(self, handle: bytes, call: Call) -> bool:
        """End a statement of the caller's. Return whether it runs."""
        owner = owner_of(call)
        with self._running_lock:
            runs = [run for run in self._running.get(handle, ()) if run.owner == owner]
        for run in runs:
            run.is_cancelled = True
        return bool(runs)

    def begin(self, call: Call) -> bytes:
        """Begin a transaction, and return its handle."""
        owner = owner_of(call)
        with self._places.taken(owner.user, call.check) as child:
            handle = self._transactions.add(OpenTransaction(owner, call.identity, child))
            child.transactions += 1
            try:
                self._run(child, call.identity, owner, {"op": "begin", "session": handle.hex()}, call.check)
            except BaseException:
                self._transactions.pop(handle, owner)
                child.transactions -= 1
                raise
        return handle

    def end(self, handle: bytes, is_commit: bool, call: Call) -> None:
        """Commit a transaction, or roll it back."""
        self._end(handle, is_commit, owner_of(call), call.check)

    def is_open(self, transaction: bytes | None) -> bool:
        """Whether a transaction has not ended."""
        return transaction in self._transactions

    def _end(self, handle: bytes, is_commit: bool, owner: Owner, check: Callable[[], None]) -> None:
        held = self._transactions.get(handle, owner)
        if not held.child.is_alive:
            self._forget(handle, held)
            if is_commit:
                raise UnavailableError("the process that held the transaction is gone: begin another transaction")
            return  # it is rolled back
        with self._places.taken(owner.user, check, of_transaction=held.child) as child:
            self._forget(handle, held)  # not before: without a place, the transaction stays open
            request = {"op": "end", "session": handle.hex(), "commit": is_commit}
            self._run(child, held.caller, owner, request, check)

    def _forget(self, handle: bytes, held: OpenTransaction) -> None:
        self._transactions.pop(handle, held.owner)
        held.child.transactions -= 1

    def _run(
        self, child: ChildHandle, caller: Any, owner: Owner, request: dict[str, Any], check: Callable[[], None]
    ) -> None:
        token = child.token_of(owner)
        with self._port.tokens.lent(token, caller):
            seconds = self._config.sql_timeout_seconds
            for _ in child.frames({**request, "token": token}, None, check, seconds, lambda: PAUSE_SECONDS):
                pass

    def _roll_back_idle(self) -> None:
        while not self._stopped.wait(TRANSACTION_SECONDS / 20):
            for handle, held in self._transactions.items():
                if held.is_idle(TRANSACTION_SECONDS):
                    with suppress(StoreError):
                        self._end(handle, False, held.owner, lambda: None)

    def _start(self) -> ChildHandle:
        config = self._config
        spills = Path(tempfile.mkdtemp(prefix="spills-", dir=self._folder))
        options = {
            "location": self._port.location,
            "limits": {
                "memory_bytes": config.sql_memory_bytes,
                "leaf_bytes": config.sql_leaf_bytes,
                "spill_folder": str(spills),
            },
            "config": config.model_dump(exclude={"private_paths"}),
        }
        most = 2 * (config.sql_memory_bytes + config.sql_leaf_bytes)  # DataFusion counts most of its memory, not all
        try:
            return ChildHandle(options, most, spills, config.sql_spill_bytes, self._turns)
        except BaseException:
            shutil.rmtree(spills, ignore_errors=True)
            raise


def owner_of(call: Call) -> Owner:
    """Return whose statement it is that a call sends."""
    identity = call.identity
    return Owner(identity.user, identity.roles, identity.source) if identity else Owner()
