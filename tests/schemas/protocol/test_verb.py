"""Verbs: each declares what its callers need."""

from __future__ import annotations

from inspect import Signature
from typing import Any

import pytest

from nyala.schemas.protocol.need import Need
from nyala.schemas.protocol.server_verbs import ACTIONS
from nyala.schemas.protocol.verb import Verb, verb


def test_a_verb_without_a_need_cannot_be() -> None:
    undeclared: Any = verb
    with pytest.raises(TypeError, match="'needs'"):
        undeclared("A verb.")
    undescribed: Any = Verb
    with pytest.raises(TypeError, match="'needs'"):
        undescribed("a", "a", Signature(), "A verb.")
    assert all(isinstance(each.needs, Need) for each in ACTIONS.values())
