"""DoAction: everything except data, as JSON in and JSON out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.flight as fl

from ...schemas.errors import InvalidArgumentError, UnavailableError
from ...schemas.protocol.need import ADMINS
from ...schemas.protocol.server_verbs import ACTIONS, SERVER_VERBS, ServerVerbs
from ...schemas.protocol.service import StoreService
from ...schemas.protocol.verb import Kind, Verb
from ...schemas.protocol.verbs import VERBS
from ...schemas.rows.write import WriteResult
from ...schemas.store.description import Health
from ..admission.admission import sized
from ..errors.errors import Guarded, Translator
from ..requests.calls import Call, Calls

FOR_ANYONE = "health"
"""The one action that needs no token, for container systems and load balancers; it then tells the status alone."""
METRICS = VERBS["metrics"].name
"""The one action that the server has more to say to than the store."""
FOR_PROCESS_ADMINS = frozenset(name for name, verb in SERVER_VERBS.items() if verb.needs == ADMINS)
"""Actions about the process, which it performs whether it has its store or not."""
_WITH_FILTER = frozenset({Kind.PLAN, Kind.STATEMENT})
"""Kinds whose bodies may be long."""
_TOLD_BYTES_MAX = 4096
"""The body of an action about the process that is noted in the audit log."""
_FAILED = "the server is not healthy; call health with a token to see why"


def run(
    store: StoreService,
    process: ServerVerbs,
    context: fl.ServerCallContext,
    action: fl.Action,
    calls: Calls,
    translator: Translator,
    is_anyone: bool = False,
) -> Iterator[fl.Result]:
    """Run one DoAction and return its only result, or its results if they are pieces of data.

    ``is_anyone``: nobody knows who calls, and the action is ``FOR_ANYONE``.

    Raises:
        StoreError: the action's error; INVALID_ARGUMENT for an unknown action, or an invalid or too large body.
    """
    chosen = ACTIONS.get(action.type)
    if chosen is None:
        raise InvalidArgumentError(f"unknown action {action.type!r}; known: {', '.join(ACTIONS)}")
    asked = process if action.type in SERVER_VERBS else store
    most = calls.config.scan_bytes_max if chosen.is_long else calls.config.request_bytes_max
    body = sized(action.body.to_pybytes(), f"the body of {action.type}", most)
    call = calls.begin(context, action.type, chosen.kind, len(body) if chosen.kind in _WITH_FILTER else 0)
    try:
        with call.working():
            found = _metrics(store, calls) if action.type == METRICS else _told(chosen, asked, body, call)
        if isinstance(found, str):
            call.close()
            if action.type == FOR_ANYONE:
                found = _with_state(found, process)
            if is_anyone:
                found = Health(status=Health.model_validate_json(found).status).model_dump_json(exclude_defaults=True)
            return iter([fl.Result(found.encode())])
        results = Guarded(_pieces(found, call), translator, action.type, call.close)
    except BaseException as error:
        call.close()
        if is_anyone:
            translator.public(error, action.type)  # it logs what the client does not see
            raise UnavailableError(_FAILED) from None
        raise
    call.waits_for_client()
    return results


def _told(verb: Verb, store: StoreService | ServerVerbs, body: bytes, call: Call) -> str | Iterator[bytes]:
    arguments = verb.taken(body)
    if verb.kind is Kind.STATEMENT:
        call.has_read()
    call.table = _table(verb, arguments)
    value = getattr(store, verb.method)(*arguments)
    if isinstance(value, WriteResult):
        call.wrote(value.applied)
    return verb.told(value)


def _with_state(health: str, process: ServerVerbs) -> str:
    """Return the answer of ``health`` with what the process is, if another one may have its store."""
    found = process.whereabouts()
    if found.name is None:
        return health
    told = Health.model_validate_json(health).model_copy(update={"name": found.name, "state": found.state})
    return told.model_dump_json()


def _table(verb: Verb, arguments: list[Any]) -> str:
    """Return the table that an action is about; empty if that is none, or not known."""
    asked = arguments[0] if arguments else None
    if isinstance(asked, str):
        return asked if verb.request and next(iter(verb.request.model_fields)) == "table" else ""
    table = getattr(asked, "table", "")
    return table if isinstance(table, str) else ""


def _metrics(store: StoreService, calls: Calls) -> str:
    return calls.metrics.now(store, calls.admission, calls.authentication).model_dump_json()


def _pieces(found: Iterator[bytes], call: Call) -> Iterator[fl.Result]:
    while True:
        with call.working():
            call.check()
            piece = next(found, None)
        if piece is None:
            return
        with call.with_client():
            yield fl.Result(piece)


def told(action: fl.Action) -> dict[str, Any]:
    """Return what the body of a DoAction about the process says, for the audit log; nothing if it is invalid."""
    request = ACTIONS[action.type].request
    if request is None or action.body.size > _TOLD_BYTES_MAX:
        return {}
    try:
        return request.model_validate_json(action.body.to_pybytes() or b"{}").model_dump(exclude_none=True)
    except ValueError:
        return {}


def listed() -> list[fl.ActionType]:
    """Return the answer to ListActions."""
    return [fl.ActionType(name, verb.about) for name, verb in ACTIONS.items()]
