"""DoAction: what is not data, as JSON in and JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow.flight as fl

from ..schemas.alter import Alteration
from ..schemas.bulk import ImportAbort, ImportBegin, ImportCommit
from ..schemas.command import DropBody, LastChange, LeaseName, MaintainBody, NowBody, RecallBody, TableName, read_json
from ..schemas.commits import CommitsBody, pages_of
from ..schemas.compaction import CompactionBegin, CompactionCommit, CompactionName
from ..schemas.description import DroppedTables, TableNames
from ..schemas.direct import PinName, PinSnapshot
from ..schemas.errors import InvalidArgumentError, NotFoundError
from ..schemas.scan import ScanSpec
from ..schemas.service import StoreService
from ..schemas.statement import Statement
from ..schemas.table import TableDefinition
from ..schemas.transaction import TransactionAbort, TransactionCommit
from . import move_actions as move
from .calls import Call, Calls
from .errors import Guarded, Translator
from .gateway import Gateway
from .get import sized
from .limits import Kind


@dataclass(frozen=True, slots=True)
class Verb:
    """One action: ``run`` takes the body and returns the JSON of the answer, or bytes piece by piece."""

    about: str
    run: Callable[[StoreService, bytes], str | Iterator[bytes]]
    is_long: bool = False
    """Whether the body may be long: a scan with its filter, the files of an import, the parts of a transaction."""
    kind: Kind = Kind.CALL


def _create_table(store: StoreService, body: bytes) -> str:
    definition = read_json(TableDefinition, body, "the body of create_table")
    return store.create_table(definition).model_dump_json()


def _alter_table(store: StoreService, body: bytes) -> str:
    return store.alter_table(read_json(Alteration, body, "the body of alter_table")).model_dump_json()


def _drop_table(store: StoreService, body: bytes) -> str:
    asked = read_json(DropBody, body, "the body of drop_table")
    store.drop_table(asked.table, asked.keep_seconds)
    return "{}"


def _recall_table(store: StoreService, body: bytes) -> str:
    asked = read_json(RecallBody, body, "the body of recall_table")
    return store.recall_table(asked.table, asked.new_name).model_dump_json()


def _dropped_tables(store: StoreService, _: bytes) -> str:
    return DroppedTables(tables=store.dropped_tables()).model_dump_json()


def _describe_table(store: StoreService, body: bytes) -> str:
    return store.describe_table(_table(body, "describe_table")).model_dump_json()


def _table_stats(store: StoreService, body: bytes) -> str:
    return store.table_stats(_table(body, "table_stats")).model_dump_json()


def _last_change(store: StoreService, body: bytes) -> str:
    return LastChange(timestamp=store.last_change(_table(body, "last_change"))).model_dump_json()


def _commit_transaction(store: StoreService, body: bytes) -> str:
    asked = read_json(TransactionCommit, body, "the body of commit_transaction")
    return store.commit_transaction(asked).model_dump_json()


def _abort_transaction(store: StoreService, body: bytes) -> str:
    asked = read_json(TransactionAbort, body, "the body of abort_transaction")
    store.abort_transaction(asked.transaction)
    return "{}"


def _execute(store: StoreService, body: bytes) -> str:
    return store.execute(read_json(Statement, body, "the body of execute").checked()).model_dump_json()


def _commits(store: StoreService, body: bytes) -> Iterator[bytes]:
    asked = read_json(CommitsBody, body, "the body of commits")
    return pages_of(store.commits(asked.table, asked.since))


def _tablets(store: StoreService, body: bytes) -> str:
    return store.tablets(_table(body, "tablets")).model_dump_json()


def _tables(store: StoreService, _: bytes) -> str:
    return TableNames(tables=store.tables()).model_dump_json()


def _placement(store: StoreService, _: bytes) -> str:
    if not isinstance(store, Gateway):
        raise NotFoundError("this server shares its tables with no other")
    return store.placement()


def _maintain(store: StoreService, body: bytes) -> str:
    asked = read_json(MaintainBody, body, "the body of maintain")
    return json.dumps(store.maintain(asked.table, asked.op))


def _explain(store: StoreService, body: bytes) -> str:
    return store.plan(read_json(ScanSpec, body, "the body of explain").checked()).model_dump_json()


def _now(store: StoreService, body: bytes) -> str:
    asked = read_json(NowBody, body or b"{}", "the body of now")
    return json.dumps({"timestamp": store.now(asked.at_least)})


def _health(store: StoreService, _: bytes) -> str:
    return store.health().model_dump_json()


def _import_begin(store: StoreService, body: bytes) -> str:
    return store.import_begin(read_json(ImportBegin, body, "the body of import_begin")).model_dump_json()


def _import_commit(store: StoreService, body: bytes) -> str:
    return store.import_commit(read_json(ImportCommit, body, "the body of import_commit")).model_dump_json()


def _import_abort(store: StoreService, body: bytes) -> str:
    store.import_abort(read_json(ImportAbort, body, "the body of import_abort").import_id)
    return "{}"


def _pin_snapshot(store: StoreService, body: bytes) -> str:
    return store.pin_snapshot(read_json(PinSnapshot, body, "the body of pin_snapshot")).model_dump_json()


def _renew_pin(store: StoreService, body: bytes) -> str:
    store.renew_pin(read_json(PinName, body, "the body of renew_pin").pin_id)
    return "{}"


def _release_pin(store: StoreService, body: bytes) -> str:
    store.release_pin(read_json(PinName, body, "the body of release_pin").pin_id)
    return "{}"


def _release_scan(store: StoreService, body: bytes) -> str:
    store.release_scan(read_json(LeaseName, body, "the body of release_scan").lease)
    return "{}"


def _compaction_begin(store: StoreService, body: bytes) -> str:
    asked = read_json(CompactionBegin, body, "the body of compaction_begin")
    return store.compaction_begin(asked).model_dump_json()


def _compaction_commit(store: StoreService, body: bytes) -> str:
    asked = read_json(CompactionCommit, body, "the body of compaction_commit")
    return store.compaction_commit(asked).model_dump_json()


def _compaction_renew(store: StoreService, body: bytes) -> str:
    store.compaction_renew(read_json(CompactionName, body, "the body of compaction_renew").compaction_id)
    return "{}"


def _compaction_abort(store: StoreService, body: bytes) -> str:
    store.compaction_abort(read_json(CompactionName, body, "the body of compaction_abort").compaction_id)
    return "{}"


def _table(body: bytes, action: str) -> str:
    return read_json(TableName, body, f"the body of {action}").table


VERBS = {
    "create_table": Verb(
        'Create a table: {"name","columns":[{"name","type","nullable","encoding","compression","block_rows",'
        '"read_default","write_default","comment","immutable"}],"primary_key":[...],"unique_key","if_not_exists",'
        '"options":{...}}. '
        "Answers its description.",
        _create_table,
    ),
    "alter_table": Verb(
        'Change a table by all steps or none: {"name","steps":[{"op":"add_column","name","type",...},'
        '{"op":"drop_column","name"},...],"if_version"}. Answers its description.',
        _alter_table,
    ),
    "drop_table": Verb(
        'Drop a table with its data, which can be recalled for a time: {"table","keep_seconds"}. Answers {}.',
        _drop_table,
    ),
    "recall_table": Verb(
        'Bring back a table that was dropped, by name or id: {"table","new_name"}. Answers its description.',
        _recall_table,
    ),
    "dropped_tables": Verb(
        'The tables that can be recalled: no body. Answers {"tables":[{"table_id","name","until"}]}.', _dropped_tables
    ),
    "describe_table": Verb(
        'A table\'s columns with ids, types, encodings and defaults, its key, options and schema version: {"table"}.',
        _describe_table,
    ),
    "table_stats": Verb(
        'A table\'s live rows, bytes on disk and memory, by tablet and by column: {"table"}.', _table_stats
    ),
    "last_change": Verb(
        'The timestamp of the last commit that changed rows of a table, 0 if there is none: {"table"}. '
        'Answers {"timestamp"}.',
        _last_change,
    ),
    "commit_transaction": Verb(
        'Commit parts that were staged, all or none: {"transaction","parts":[...],"truncate":[tables],"app_id",'
        '"app_version"}. Answers what became of it.',
        _commit_transaction,
        True,
        kind=Kind.TASK,
    ),
    "abort_transaction": Verb(
        'Throw away what was staged for a transaction: {"transaction"}. Answers {}.', _abort_transaction
    ),
    "execute": Verb(
        'Change rows as one commit: {"table","kind":"update"|"delete"|"restore","set":{column:expression},"where",'
        '"as_of","durability","writer","seq"}. Answers as a write does.',
        _execute,
        True,
    ),
    "commits": Verb(
        'The commits to a table after a moment, ascending, as several results: {"table","since"}. Each answers '
        '{"timestamp":[...],"writer":[...],"transaction":[...],"inserted":[...],"updated":[...],"deleted":[...]}.',
        _commits,
    ),
    "tablets": Verb(
        'How a table is cut, and which of its tablets are on this server: {"table"}. Answers '
        '{"schema_version","partitions","tablets":[{"tablet","partition","server"}]}.',
        _tablets,
    ),
    "tables": Verb('The names of the tables: no body. Answers {"tables"}.', _tables),
    "placement": Verb(
        "The placement of the servers that share their tables, of which this is one: no body. Answers it as JSON.",
        _placement,
    ),
    "maintain": Verb(
        'Do one kind of maintenance now: {"table","op":"flush"|"flush_deltas"|"minor_compact"|"major_compact"|"gc"'
        '|"compact"}. Answers what was done.',
        _maintain,
        kind=Kind.TASK,
    ),
    "explain": Verb(
        "How a scan would run, and what is pruned and why: the JSON of a ticket.", _explain, True, Kind.PLAN
    ),
    "import_begin": Verb(
        'Begin an import of rowset files: {"table","ttl_seconds"}. Answers the plan that builders go by.', _import_begin
    ),
    "import_commit": Verb(
        'Attach the files of an import as one commit: {"import_id","files":[...],"mode":"insert_only"|"upsert"}. '
        "Answers as a write does.",
        _import_commit,
        True,
        kind=Kind.TASK,
    ),
    "import_abort": Verb('Drop an import and its files: {"import_id"}. Answers {}.', _import_abort),
    "pin_snapshot": Verb(
        'Keep the files of a snapshot for readers outside: {"table","as_of","ttl_seconds"}. Answers where they are.',
        _pin_snapshot,
        kind=Kind.TASK,
    ),
    "renew_pin": Verb('Keep them for as long again: {"pin_id"}. Answers {}.', _renew_pin),
    "release_pin": Verb('Keep them no longer: {"pin_id"}. Answers {}.', _release_pin),
    "release_scan": Verb(
        'Keep no longer what GetFlightInfo keeps for its tickets: {"lease"}. Answers {}, also when nothing is kept.',
        _release_scan,
    ),
    "compaction_begin": Verb(
        'Hand out rowsets to be merged outside: {"table","tablets","replace","ttl_seconds"}. Answers the tasks.',
        _compaction_begin,
        kind=Kind.TASK,
    ),
    "compaction_commit": Verb(
        'Put the merged files of a task in place: {"compaction_id","task":{"number","attempt","rowsets":[...],'
        '"is_history_lost"}}. Answers what was done.',
        _compaction_commit,
        True,
        kind=Kind.TASK,
    ),
    "compaction_renew": Verb('Wait for the commits as long again: {"compaction_id"}. Answers {}.', _compaction_renew),
    "compaction_abort": Verb('Drop what was not committed: {"compaction_id"}. Answers {}.', _compaction_abort),
    "moves": Verb(
        'The moves of a table\'s tablets that did not end, and those by which tablets came: {"table"}. Answers '
        '{"arriving","left","arrived"}.',
        move.moves,
    ),
    "move_begin": Verb(
        'Begin to move a tablet away from this server, or the next round: {"move","table","tablet","to","last"}. '
        "Answers the round: the tablet's files.",
        move.begin,
        kind=Kind.TASK,
    ),
    "move_round": Verb('The newest round of a move, again: {"move"}. The target compares with it.', move.newest_round),
    "move_read": Verb(
        'The bytes of a file of the newest round, as several results: {"move","name"}.', move.read, kind=Kind.TASK
    ),
    "move_receive": Verb(
        'Tell the server that a tablet moves to of a round: its JSON. Answers {"names"}, the files to be fetched.',
        move.receive,
        True,
        kind=Kind.TASK,
    ),
    "move_fetch": Verb(
        'Fetch a file from the server that has it: {"move","source","file"}. Answers {}.', move.fetch, kind=Kind.TASK
    ),
    "move_prepare": Verb(
        "Keep the files of the last round, durably: its JSON. Answers {}.", move.prepare, True, kind=Kind.TASK
    ),
    "move_hand_over": Verb(
        'Give a tablet up, durably, once the other server has prepared the round: {"move","number"}. Answers what '
        "move_take_over takes.",
        move.hand_over,
        kind=Kind.TASK,
    ),
    "move_take_over": Verb(
        "Serve a tablet that was handed over: what move_hand_over answered.", move.take_over, True, kind=Kind.TASK
    ),
    "move_forget": Verb('End a move, at the server that the tablet came from: {"move"}. Answers {}.', move.forget),
    "move_status": Verb(
        'Where a move away from this server stands: {"move"}. Answers {"state":"under_way"|"handed_over"|"unknown"}, '
        "and what was handed over.",
        move.status,
    ),
    "move_abort": Verb('Give a move up, unless the tablet was handed over: {"move"}. As move_status.', move.abort),
    "now": Verb(
        'A timestamp at which every write acknowledged so far is visible: no body, or {"at_least"} with a timestamp '
        'that this clock is to follow. Answers {"timestamp"}.',
        _now,
    ),
    "health": Verb(
        'Whether the store takes writes: no body. Answers {"status":"ok"|"degraded"|"read_only","reason","version",'
        '"server","damaged":[{"path","offset","why","table","tablet","is_quarantined","next_step"}]}.',
        _health,
    ),
}


def run(
    store: StoreService, context: fl.ServerCallContext, action: fl.Action, calls: Calls, translator: Translator
) -> Iterator[fl.Result]:
    """Run one action and return its one result, or its results if they are pieces of data.

    Raises:
        StoreError: what the action raises; INVALID_ARGUMENT for an unknown one or a body that is wrong or too large.
    """
    chosen = VERBS.get(action.type)
    if chosen is None:
        raise InvalidArgumentError(f"unknown action {action.type!r}; known: {', '.join(VERBS)}")
    most = calls.config.scan_bytes_max if chosen.is_long else calls.config.request_bytes_max
    body = sized(action.body.to_pybytes(), f"the body of {action.type}", most)
    call = calls.begin(context, chosen.kind, len(body) if chosen.kind is Kind.PLAN else 0)
    try:
        with call.working():
            found = chosen.run(store, body)
        if isinstance(found, str):
            call.close()
            return iter([fl.Result(found.encode())])
        results = Guarded(_pieces(found, call), translator, action.type, call.close)
    except BaseException:
        call.close()
        raise
    call.waits_for_client()
    return results


def _pieces(found: Iterator[bytes], call: Call) -> Iterator[fl.Result]:
    while True:
        with call.working():
            call.check()
            piece = next(found, None)
        if piece is None:
            return
        with call.with_client():
            yield fl.Result(piece)


def listed() -> list[fl.ActionType]:
    """Return what ListActions answers."""
    return [fl.ActionType(name, verb.about) for name, verb in VERBS.items()]
