"""Rules: each verb is checked by its need, and if the content decides, by a rule or by a method of GuardedStore."""

from __future__ import annotations

from contextlib import nullcontext
from inspect import Signature

import pytest

from nyala.engine.fs.memory import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.store import Store
from nyala.flight_server.security.guarded_store import GuardedStore
from nyala.flight_server.security.rights import Caller, GrantBook
from nyala.flight_server.security.rules import CONTENT_RULES
from nyala.schemas.errors import PermissionDeniedError
from nyala.schemas.protocol.need import ADMINS, ANYONE, BY_CONTENT, Need, Scope
from nyala.schemas.protocol.server_verbs import SERVER_VERBS
from nyala.schemas.protocol.verb import Verb
from nyala.schemas.protocol.verbs import VERBS


def test_where_the_content_decides_a_rule_or_a_method_looks_into_it() -> None:
    by_content = {verb.method for verb in VERBS.values() if verb.needs == BY_CONTENT}
    assert by_content >= CONTENT_RULES.keys()
    assert {method for method in by_content - CONTENT_RULES.keys() if method not in vars(GuardedStore)} == set()


def test_a_process_checks_administrators_only() -> None:
    assert {verb.needs for verb in SERVER_VERBS.values()} == {ADMINS, ANYONE}


@pytest.mark.parametrize("scope", sorted(set(Scope) - {Scope.NOTHING, Scope.VISIBLE_TABLE}, key=str))
def test_a_need_that_nothing_decides_is_for_administrators(scope: Scope) -> None:
    store = Store.open(MemoryFileSystem(), StoreOptions(maintenance="off"))
    verb = Verb("new", "dropped_tables", Signature(), "", Need(scope))
    for is_admin in (True, False):
        guarded = GuardedStore(store, Caller("alice", is_admin=is_admin), GrantBook(store), None)
        with nullcontext() if is_admin else pytest.raises(PermissionDeniedError, match="no grant to admin on all"):
            assert guarded.perform(verb) == []
    store.close()
