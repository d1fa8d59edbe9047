"""Every kind of request with the privileges that it needs, written down apart from the server's rules, and a tiny model
of grants that tells what comes out."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from nyala.schemas.protocol.session import answer_of, request

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("a", pa.int64()), ("b", pa.string())])
ALL = ("k", "a", "b")
SECRET = "a-planted-cell"
PLAIN = ("delete", "alter", "maintain", "admin")
"""Privileges without columns."""

Privileges = Mapping[str, frozenset[str]]
"""What somebody has, or a request needs: each privilege with its columns."""


def privileges(**given: str) -> dict[str, frozenset[str]]:
    """``read="a b"``; a privilege on no column in particular is ``""``."""
    return {name: frozenset(columns.split()) for name, columns in given.items()}


class Caller:
    """A plain Flight client with a token."""

    def __init__(self, url: str, token: str, transaction: str = "tx") -> None:
        self.client = fl.connect(url)
        self.options = fl.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=60)
        self.transaction = transaction

    def action(self, name: str, /, **body: Any) -> Any:
        results = self.client.do_action(fl.Action(name, json.dumps(body).encode() if body else b""), self.options)
        return next(json.loads(each.body.to_pybytes()) for each in results)

    def scan(self, **spec: Any) -> pa.Table:
        return self.client.do_get(fl.Ticket(json.dumps({"table": "t", **spec}).encode()), self.options).read_all()

    def info(self, **spec: Any) -> fl.FlightInfo:
        told = fl.FlightDescriptor.for_command(json.dumps({"table": "t", **spec}).encode())
        return self.client.get_flight_info(told, self.options)

    def read(self, info: fl.FlightInfo) -> list[pa.Table]:
        return [self.client.do_get(each.ticket, self.options).read_all() for each in info.endpoints]

    def schema(self, **spec: Any) -> pa.Schema:
        told = fl.FlightDescriptor.for_command(json.dumps({"table": "t", **spec}).encode())
        return self.client.get_schema(told, self.options).schema

    def put(self, op: str, columns: str, **command: Any) -> Any:
        rows = batch(columns)
        told = fl.FlightDescriptor.for_command(json.dumps({"table": "t", "op": op, **command}).encode())
        writer, reader = self.client.do_put(told, rows.schema, self.options)
        try:
            writer.write_batch(rows)
            if "stage" in command:
                writer.write_metadata(json.dumps({"commit": True, "rows": 1}).encode())
            writer.done_writing()
            return json.loads(reader.read().to_pybytes())
        finally:
            writer.close()

    @property
    def table_id(self) -> int:
        return self.action("describe_table", table="t")["table_id"]

    def stage(self, op: str, columns: str, **more: Any) -> None:
        self.put(op, columns, stage={"transaction": self.transaction, "part": "p", **more})

    def commit(self, **more: Any) -> Any:
        return self.action("commit_transaction", transaction=self.transaction, **more)

    def point_read(self) -> pa.Table:
        told = fl.FlightDescriptor.for_command(b'{"table":"t"}')
        writer, reader = self.client.do_exchange(told, self.options)
        with writer:
            writer.begin(batch("k").schema)
            writer.write_batch(batch("k"))
            writer.done_writing()
            return reader.read_chunk().data

    def session(self, first: Any, second: Any = None, rest: bytes = b"") -> dict[str, Any]:
        """One request of a session; raises what it answers."""
        open_session = OpenSession(self)
        try:
            return open_session.ask(first, second, rest)
        finally:
            open_session.writer.close()


class OpenSession:
    """A session that stays open."""

    def __init__(self, caller: Caller) -> None:
        told = fl.FlightDescriptor.for_command(b'{"session":1}')
        self.writer, self.reader = caller.client.do_exchange(told, caller.options)
        self.writer.begin(pa.schema([]))

    def ask(self, first: Any, second: Any = None, rest: bytes = b"") -> dict[str, Any]:
        line = b"" if second is None else json.dumps(second).encode()
        self.writer.write_metadata(request(json.dumps(first).encode(), line, rest))
        said, _, _ = answer_of(self.reader.read_chunk().app_metadata.to_pybytes())
        if "error" in said:
            raise RuntimeError(f"{said['error']['code']}: {said['error']['message']}")
        return said


def an_hour_ago() -> int:
    return int((time.time() - 3600) * 1e6) << 12


def batch(columns: str, count: int = 1) -> pa.RecordBatch:
    schema = pa.schema([SCHEMA.field(name) for name in columns.split()])
    return pa.RecordBatch.from_pylist([{"k": key, "a": 5, "b": SECRET} for key in range(1, count + 1)], schema)


def base64_of(columns: str) -> str:
    return base64.b64encode(batch(columns).schema.serialize().to_pybytes()).decode()


@dataclass(frozen=True)
class Request:
    """A request, what it needs on the table ``t``, and what it needs on all tables."""

    run: Callable[[Caller], object]
    needs: Privileges
    everywhere: frozenset[str] = field(default_factory=frozenset)
    after: Callable[[Caller], object] | None = None
    """What an administrator does when it succeeded, for the next caller."""
    is_of_servers: bool = False
    """It is about no table: it needs ``everywhere``, or else admin, on all tables."""
    is_by_id: bool = False
    """It is about something of a table that is not there: it never tells whether the table is."""
    is_for_anyone: bool = False
    may_fail: bool = False
    """When it is allowed, it fails."""


def needs(run: Callable[[Caller], object], *everywhere: str, after: Any = None, **given: str) -> Request:
    return Request(run, privileges(**given), frozenset(everywhere), after)


def sent(op: str, columns: str) -> Callable[[Caller], object]:
    return lambda caller: caller.put(op, columns)


def staged(
    op: str, columns: str, table_id: int | None = None, if_timestamp: int | None = None
) -> Callable[[Caller], object]:
    def run(caller: Caller) -> None:
        try:
            caller.stage(op, columns, table_id=table_id)
            caller.commit(parts=["p"], if_timestamp=if_timestamp)
        finally:
            caller.action("abort_transaction", transaction=caller.transaction)

    return run


def by_session(op: str, columns: str) -> Callable[[Caller], object]:
    cells = {"k": 1, "a": 5, "b": SECRET}
    first = {"write": {"table": "t", "op": op}, "columns": columns.split()}
    return lambda caller: caller.session(first, {"row": [cells[name] for name in columns.split()]})


def by_session_batch(op: str, columns: str, count: int = 1) -> Callable[[Caller], object]:
    first = {"write": {"table": "t", "op": op}, "arrow_schema": base64_of(columns)}
    return lambda caller: caller.session(first, None, batch(columns, count).serialize().to_pybytes())


def statement(**body: Any) -> Callable[[Caller], object]:
    return lambda caller: caller.action("execute", table="t", **body)


WRITES: dict[str, Callable[[str, str], Callable[[Caller], object]]] = {
    "put": sent,
    "session": by_session,
    "session batch": by_session_batch,
    "few rows in a session": lambda op, columns: by_session_batch(op, columns, 3),
    "many rows in a session": lambda op, columns: by_session_batch(op, columns, 100),
    "staged": staged,
}
TREE = {"op": "and", "args": [{"op": "not", "arg": {"op": "is_null", "column": "b"}}]}
REQUESTS: dict[str, Request] = {
    "scan of a column": needs(lambda c: c.scan(columns=["a"]), read="a"),
    "scan of all": needs(lambda c: c.scan(), read="k a b"),
    "scan of no column": needs(lambda c: c.scan(columns=[]), read=""),
    "filter": needs(lambda c: c.scan(columns=["a"], where="b = 'x'"), read="a b"),
    "filter alone": needs(lambda c: c.scan(columns=[], where="b like 'x%'"), read="b"),
    "filter of the key": needs(lambda c: c.scan(columns=["a"], where="k = 1"), read="a k"),
    "quoted filter": needs(lambda c: c.scan(columns=["a"], where='"b" is null or true'), read="a b"),
    "filter as a tree": needs(lambda c: c.scan(columns=["a"], where=TREE), read="a b"),
    "sum": needs(lambda c: c.scan(aggregate={"n": ["a", "sum"]}), read="a"),
    "count of rows": needs(lambda c: c.scan(aggregate={"n": ["*", "count"]}), read=""),
    "groups": needs(lambda c: c.scan(aggregate={"n": ["a", "max"]}, group_by=["b"]), read="a b"),
    "filtered sum": needs(lambda c: c.scan(aggregate={"n": ["a", "sum"]}, where="b > 'c'"), read="a b"),
    "order": needs(lambda c: c.scan(columns=["a"], order_by=[{"column": "b"}], limit=2), read="a b"),
    "key order": needs(lambda c: c.scan(columns=["a"], ordered=True), read="a k"),
    "keys": needs(lambda c: c.scan(columns=["a"], key_lower="8000000000000001"), read="a k"),
    "marks": needs(lambda c: c.scan(columns=["a"], marks=True), read="a"),
    "changes": needs(lambda c: c.scan(columns=["a"], changes={"since": an_hour_ago(), "before": True}), read="a"),
    "filtered changes": needs(
        lambda c: c.scan(columns=["a"], changes={"since": an_hour_ago()}, where="b = 'x'"), read="a b"
    ),
    "history": needs(lambda c: c.scan(columns=["a"], as_of=c.action("now")["timestamp"]), read="a"),
    "explain": needs(lambda c: c.action("explain", table="t", columns=["a"], where="b = 'x'"), read="a b"),
    "plan and tickets": needs(lambda c: c.read(c.info(columns=["a"], split_bytes=1)), read="a"),
    "schema": needs(lambda c: c.schema(columns=["a"]), read="a"),
    "point reads": needs(lambda c: c.point_read(), read="k a b"),
    "session get": needs(lambda c: c.session({"get": "t"}, {"key": [1]}), read="k a b"),
    "session get many": needs(
        lambda c: c.session(
            {"get_many": "t", "arrow_schema": base64_of("k")}, None, batch("k").serialize().to_pybytes()
        ),
        read="k a b",
    ),
    "session scan": needs(
        lambda c: c.session({"scan": {"table": "t", "columns": ["a"], "where": "b = 'x'"}}), read="a b"
    ),
    **{
        f"{way}: {name}": needs(make(op, columns), **needed)
        for way, make in WRITES.items()
        for name, op, columns, needed in (
            ("insert", "insert_ignore", "k a b", {"insert": "k a b"}),
            ("insert of some", "insert_ignore", "k a", {"insert": "k a"}),
            ("upsert", "upsert", "k a", {"insert": "k a", "update": "a"}),
            ("merge", "merge", "k a", {"insert": "k a", "update": "a"}),
            ("update", "update_ignore", "k b", {"update": "b"}),
            ("delete", "delete_ignore", "k", {"delete": ""}),
        )
    },
    "update where": needs(statement(kind="update", set={"a": "k + 1"}, where="b = 'x'"), update="a", read="k b"),
    "update of all": needs(statement(kind="update", set={"a": "1"}), update="a"),
    "delete where": needs(statement(kind="delete", where="b = 'x'"), delete="", read="b"),
    "restore": needs(
        lambda c: c.action("execute", table="t", kind="restore", as_of=c.action("now")["timestamp"]),
        read="k a b",
        insert="k a b",
        update="k a b",
        delete="",
    ),
    "truncate": needs(lambda c: c.commit(truncate=["t"]), delete=""),
    "import": needs(lambda c: c.action("import_begin", table="t"), insert="k a b"),
    "pin": needs(lambda c: c.action("pin_snapshot", table="t"), read="k a b"),
    "partial groups": needs(lambda c: c.scan(aggregate={"n": ["a", "max"]}, group_by=["b"], partial=True), read="a b"),
    "partial sum of some keys": needs(
        lambda c: c.scan(aggregate={"n": ["a", "sum"]}, partial=True, key_lower="8000000000000001"), read="a k"
    ),
    "rows after some": needs(
        lambda c: c.scan(columns=["a"], order_by=[{"column": "b"}], offset=1, limit=2), read="a b"
    ),
    "write if unchanged": needs(
        lambda c: c.put("upsert", "k a", if_timestamp=c.action("now")["timestamp"]), insert="k a", update="a"
    ),
    "merge by a rule": needs(lambda c: c.put("merge", "k a", rules={"a": "sum"}), insert="k a", update="a", read="a"),
    "merge by the new row": needs(
        lambda c: c.put("merge", "k a", rules={"a": "excluded.a + 1"}), insert="k a", update="a"
    ),
    "merge that keeps": needs(
        lambda c: c.put("merge", "k a b", rules={"b": "b", "a": "excluded.a"}), insert="k a b", update="a"
    ),
    "merge that copies": needs(
        lambda c: c.put("merge", "k", rules={"b": "CAST(a AS TEXT)"}), insert="k b", update="b", read="a"
    ),
    "commit if unchanged": needs(
        lambda c: staged("upsert", "k a", if_timestamp=c.action("now")["timestamp"])(c), insert="k a", update="a"
    ),
    "stage for one table": needs(lambda c: staged("upsert", "k a", table_id=c.table_id)(c), insert="k a", update="a"),
    "truncate one table": needs(lambda c: c.commit(truncate=["t"], table_ids={"t": c.table_id}), delete=""),
    "merge outside": needs(lambda c: c.action("compaction_begin", table="t", replace=True), admin=""),
    "maintain": needs(lambda c: c.action("maintain", table="t", op="flush"), maintain=""),
    "alter": needs(
        lambda c: c.action("alter_table", table="t", steps=[{"op": "set_comment", "name": "a", "comment": "!"}]),
        alter="",
    ),
    "quota": needs(
        lambda c: c.action(
            "alter_table", table="t", steps=[{"op": "set_option", "option": "max_rows", "value": 1_000_000_000}]
        ),
        alter="",
        admin="",
    ),
    "maintenance off": needs(
        lambda c: c.action(
            "alter_table", table="t", steps=[{"op": "set_option", "option": "maintenance", "value": "on"}]
        ),
        alter="",
        maintain="",
    ),
    "kept history": needs(
        lambda c: c.action("alter_table", table="t", steps=[{"op": "set_option", "option": "history_max_age_seconds"}]),
        alter="",
        maintain="",
    ),
    "grant": needs(lambda c: c.action("grant", user="carol", table="t", privileges=["read"]), admin=""),
    "revoke": needs(lambda c: c.action("revoke", user="carol", table="t", privileges=["read"]), admin=""),
    "describe": needs(lambda c: c.action("describe_table", table="t")),
    "stats": needs(lambda c: c.action("table_stats", table="t")),
    "tablets": needs(lambda c: c.action("tablets", table="t")),
    "commits": needs(lambda c: list(c.client.do_action(fl.Action("commits", b'{"table":"t"}'), c.options)), read=""),
    "last change": needs(lambda c: c.action("last_change", table="t"), read=""),
    "drop": needs(
        lambda c: c.action("drop_table", table="t", keep_seconds=100),
        alter="",
        after=lambda c: c.action("recall_table", table="t"),
    ),
    "drop and keep for long": needs(
        lambda c: c.action("drop_table", table="t", keep_seconds=604_801),
        alter="",
        maintain="",
        after=lambda c: c.action("recall_table", table="t"),
    ),
    "rename": needs(
        lambda c: c.action("alter_table", table="t", steps=[{"op": "rename", "to": "other"}]),
        "alter",
        alter="",
        after=lambda c: c.action("alter_table", table="other", steps=[{"op": "rename", "to": "t"}]),
    ),
    "metrics": Request(lambda c: c.action("metrics"), {}, frozenset({"maintain"}), is_of_servers=True),
    "maintenance": Request(lambda c: c.action("maintenance"), {}, frozenset({"maintain"}), is_of_servers=True),
    "pause maintenance": Request(
        lambda c: c.action("pause_maintenance", op="gc", seconds=0), {}, frozenset({"maintain"}), is_of_servers=True
    ),
    "move": Request(
        lambda c: c.action("move_begin", move="m", table="t", tablet=1, to="b", last=False),
        {},
        is_of_servers=True,
        may_fail=True,
    ),
}


def expected(has: Privileges, everywhere: frozenset[str], asked: Request) -> str:
    """What comes out by the model: ok, denied or hidden."""
    if asked.is_for_anyone:
        return "ok"
    if asked.is_of_servers:
        return "ok" if "admin" in everywhere or (asked.everywhere and asked.everywhere <= everywhere) else "denied"
    if not has and not everywhere:
        return "denied" if asked.is_by_id else "hidden"
    if "admin" in has or "admin" in everywhere:
        has = dict.fromkeys(("read", "insert", "update", *PLAIN), frozenset(ALL))
    if "admin" not in everywhere and not asked.everywhere <= everywhere:
        return "denied"
    lacking = [name for name, columns in asked.needs.items() if name not in has or not columns <= has[name]]
    return "denied" if lacking else "ok"


def outcome(asked: Request, caller: Caller) -> str:
    """What comes out of a request: ok, denied, hidden, or another error's text."""
    try:
        asked.run(caller)
    except Exception as error:
        text = str(error)
        if "PERMISSION_DENIED: " in text and ("has no grant to" in text or "is for administrators only" in text):
            return "denied"
        if "NOT_FOUND: there is no table 't'" in text:
            return "hidden"
        if (asked.may_fail or asked.is_by_id) and text.startswith(("NOT_FOUND: ", "INVALID_ARGUMENT: ", "CONFLICT: ")):
            return "ok"  # it was allowed
        return f"{type(error).__name__}: {text}"
    return "ok"
