"""Verbs: each declares what its callers need, and describes itself by its docstring and its models."""

from __future__ import annotations

import re
from inspect import Signature
from pathlib import Path
from typing import Any

import pytest

from nyala.schemas.protocol.need import ANYONE, Need
from nyala.schemas.protocol.server_verbs import ACTIONS
from nyala.schemas.protocol.service import MaintenanceKind
from nyala.schemas.protocol.verb import Pieces, Verb, verb

DOCUMENT = Path(__file__).parents[3] / "docs/flight-actions.md"
_NAME = re.compile(r'"(\w+)"')


def test_a_verb_without_a_need_cannot_be() -> None:
    undeclared: Any = verb
    with pytest.raises(TypeError, match="'needs'"):
        undeclared()
    undescribed: Any = Verb
    with pytest.raises(TypeError, match="'needs'"):
        undescribed("a", "a", Signature(), "A verb.")
    assert all(isinstance(each.needs, Need) for each in ACTIONS.values())


def test_a_verb_describes_itself() -> None:
    """By hand, so that a wrong derivation is seen."""
    about = {name: each.about for name, each in ACTIONS.items()}
    assert about["drop_table"] == (
        "Drop a table with its data, which can be recalled for `keep_seconds`. Running scans continue. "
        'Body: {"table","keep_seconds"?}. Answer: {}.'
    )
    assert about["tables"] == 'Return the names of the tables, sorted. Body: none. Answer: {"tables":[...]}.'
    assert about["now"].endswith('Body: {"at_least"?}. Answer: {"timestamp"}.')
    assert about["move_read"].endswith('Body: {"move","name"}. Answer: bytes, as several results.')
    assert 'Answer: several results, each {"timestamp":[...],"writer":[...],' in about["commits"]
    assert '"kind":"update"|"delete"|"restore","set"?:{...},"where"?,"as_of"?' in about["execute"]
    assert '"steps":[{"op":"add_column","name","type",' in about["alter_table"]
    assert '|{"op":"drop_column","name"}|' in about["alter_table"]
    assert all(re.match(r"[A-Z]\w*:? ", text) and "``" not in text and "  " not in text for text in about.values())


def test_a_description_has_the_names_of_the_wire() -> None:
    for each in ACTIONS.values():
        body, _, answer = each.about.partition(" Body: ")[2].partition(" Answer: ")
        assert {*_NAME.findall(body)} <= _names(each.request), each.name
        model = each.answer.model if isinstance(each.answer, Pieces) else each.answer
        if model is not dict:
            assert {*_NAME.findall(answer)} <= _names(model), each.name


def _names(model: Any) -> set[str]:
    """Return the names that pydantic knows in a model, and the words of its choices."""
    if model is None:
        return set()
    names: set[str] = set()

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            names.update(part.get("properties", ()), part.get("enum", ()), [part.get("const", "")])
            for each in part.values():
                walk(each)
        elif isinstance(part, list):
            for each in part:
                walk(each)

    walk(model.model_json_schema())
    return names


def test_maintenance_is_described_with_all_its_kinds() -> None:
    words = {*re.findall(r"\w+", ACTIONS["maintain"].about)}
    assert words >= {*map(str, MaintenanceKind)}


def test_the_documented_bodies_are_those_of_the_models() -> None:
    lines = [line.split(" | ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    documented: set[str] = set()
    for actions, body, *_ in lines:
        names = [name for name in re.findall(r"`(\w+)`", actions) if name in ACTIONS]
        documented.update(names)
        bodies = re.findall(r"`({.*?})`", body)
        for number, name in enumerate(names if bodies else []):
            request, shown = ACTIONS[name].request, {*_NAME.findall(bodies[min(number, len(bodies) - 1)])}
            assert request is not None and shown <= _names(request), name
            assert {each for each, field in request.model_fields.items() if field.is_required()} <= shown, name
    assert documented == ACTIONS.keys()


def test_a_verb_without_a_docstring_is_described() -> None:
    assert Verb("a", "a", Signature(), "", ANYONE).about.strip() == "Body: none. Answer: {}."
