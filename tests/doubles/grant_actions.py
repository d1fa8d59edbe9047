"""The requests that are about no rows of a table, as ``grant_statements`` has the others: by the id of something kept,
for all tables, between servers, and for anyone."""

from __future__ import annotations

from functools import cache
from typing import Any

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.schemas.store.moving import MoveBegin
from nyala.schemas.store.placement import Placement, TablePlacement
from nyala.schemas.table.table import TableDefinition
from tests.doubles.grant_statements import ALL, SCHEMA, Request, privileges

_ID = "1-00ff"
"""Of something that is not there, of the table ``t``: the first of its store."""
_FILE = {"name": "1.base", "bytes": 1, "crc": 0}
_TASK = {"number": 0, "attempt": "0", "rowsets": [], "is_history_lost": False}


def _by_id(name: str, /, *, given: dict[str, str], **body: Any) -> Request:
    return Request(lambda caller: caller.action(name, **body), privileges(**given), is_by_id=True)


def _of_all(name: str, /, *everywhere: str, after: Any = None, **body: Any) -> Request:
    return Request(
        lambda caller: caller.action(name, **body), {}, frozenset(everywhere), after, is_of_servers=True, may_fail=True
    )


def _moving(name: str, /, **body: Any) -> Request:
    return _of_all(name, move="m", **body)


def _for_anyone(name: str, /, **body: Any) -> Request:
    return Request(lambda caller: caller.action(name, **body), {}, is_for_anyone=True)


@cache
def _round() -> dict[str, Any]:
    """The files of a tablet that moves, as another server tells them."""
    here = {"t": TablePlacement(servers=("a",))}
    placement = Placement(servers={"a": ("grpc://a:1",), "b": ("grpc://b:1",)}, tables=here)
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off", placement=placement, server="a"))
    store.create_table(TableDefinition.from_arrow("t", SCHEMA, ["k"]))
    tablet = next(each.tablet for each in store.tablets("t").tablets if each.tablet is not None)
    found = store.move_begin(MoveBegin(move="m", table="t", tablet=tablet, to="b", last=False))
    store.close()
    return found.model_dump(mode="json", by_alias=True)


_WRITES = {"insert": " ".join(ALL), "update": " ".join(ALL)}
_COLUMN = {"name": "k", "type": "int64", "nullable": False}


def _created(**options: Any) -> Request:
    return _of_all(
        *("create_table", "alter", "maintain"),
        name="new",
        columns=[_COLUMN],
        primary_key=["k"],
        options=options,
        after=lambda c: c.action("drop_table", table="new"),
    )


ACTIONS: dict[str, Request] = {
    "import commit": _by_id("import_commit", given={"insert": _WRITES["insert"]}, import_id=_ID, files=[]),
    "import upsert": _by_id("import_commit", given=_WRITES, import_id=_ID, files=[], mode="upsert"),
    "import abort": _by_id("import_abort", given={"insert": _WRITES["insert"]}, import_id=_ID),
    "renew pin": _by_id("renew_pin", given={"read": " ".join(ALL)}, pin_id=_ID),
    "release pin": _by_id("release_pin", given={"read": " ".join(ALL)}, pin_id=_ID),
    "open pin": _by_id("open_pin", given={"read": " ".join(ALL)}, pin_id=_ID),
    "drop pin": _by_id("drop_pin", given={"maintain": ""}, pin_id=_ID),
    "create pin": _of_all("create_pin", "maintain", name="p"),
    "pins": _for_anyone("pins"),
    "merged outside": _by_id("compaction_commit", given={"admin": ""}, compaction_id=_ID, task=_TASK),
    "merges longer outside": _by_id("compaction_renew", given={"admin": ""}, compaction_id=_ID),
    "merges no more outside": _by_id("compaction_abort", given={"admin": ""}, compaction_id=_ID),
    "create": _of_all(
        *("create_table", "alter"),
        name="new",
        columns=[_COLUMN],
        primary_key=["k"],
        after=lambda c: c.action("drop_table", table="new"),
    ),
    "create unmaintained": _created(maintenance="off"),
    "create with a long history": _created(history_max_age_seconds=604_801),
    "recall": _of_all("recall_table", "alter", table="gone"),
    "dropped": _of_all("dropped_tables", "alter"),
    "checkpoint": _of_all("checkpoint", directory="relative"),
    "moves": _of_all("moves", table="t"),
    "move round": _moving("move_round"),
    "move read": _moving("move_read", name="1.base"),
    "move fetch": _moving("move_fetch", source="a", file=_FILE),
    "move hand over": _moving("move_hand_over", table="t", to="b", number=1),
    "move take over": _moving("move_take_over", table="t", clock=1, last_auto_id=0, last_change=0),
    "move forget": _moving("move_forget"),
    "move status": _moving("move_status"),
    "move abort": _moving("move_abort"),
    "move receive": Request(lambda c: c.action("move_receive", **_round()), {}, is_of_servers=True, may_fail=True),
    "move prepare": Request(lambda c: c.action("move_prepare", **_round()), {}, is_of_servers=True, may_fail=True),
    "release the store": _of_all("server_release", name="a"),
    "take the store": _of_all("server_take", name="a", force=True),
    "who has the store": _for_anyone("where"),
    "tables": _for_anyone("tables"),
    "placement": Request(lambda c: c.action("placement"), {}, is_for_anyone=True, may_fail=True),
    "now": _for_anyone("now"),
    "health": _for_anyone("health"),
    "grants": _for_anyone("grants"),
    "parts of a transaction": _for_anyone("staged_parts", transaction="nobody's"),
    "release scan": _for_anyone("release_scan", lease="00"),
    "flights": Request(lambda c: list(c.client.list_flights(options=c.options)), {}, is_for_anyone=True),
}
