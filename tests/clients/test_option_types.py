"""The keywords that editors and type checkers know are the options that there are."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from pydantic import BaseModel

import nyala
from nyala.clients.api.database import Database
from nyala.engine.options import StoreOptions, StoreOptionsDict
from nyala.schemas.table.table import TableOptions, TableOptionsDict


def alternatives(hint: Any) -> set[Any]:
    """Return the types that a hint lets through."""
    return set(get_args(hint)) if get_origin(hint) in (Union, types.UnionType) else {hint}


def apart(model: type[BaseModel], keywords: type) -> list[str]:
    """Return what a model takes and its keywords do not, or the other way round."""
    hints, fields = get_type_hints(keywords), model.model_fields
    wrong = sorted(hints.keys() ^ fields.keys())
    for name in hints.keys() & fields.keys():
        if not alternatives(fields[name].annotation) <= alternatives(hints[name]):
            wrong.append(f"{name}: {fields[name].annotation} is not {hints[name]}")
    return wrong


@pytest.mark.parametrize(("model", "keywords"), [(StoreOptions, StoreOptionsDict), (TableOptions, TableOptionsDict)])
def test_keywords_are_the_fields_of_the_model(model: type[BaseModel], keywords: type) -> None:
    assert apart(model, keywords) == []


def test_keywords_that_are_behind_are_seen() -> None:
    class Newer(TableOptions, frozen=True):
        replicas: int = 1

    class Other(TableOptions, frozen=True):
        comment: bytes = b""  # pyright: ignore[reportIncompatibleVariableOverride]

    assert apart(Newer, TableOptionsDict) == ["replicas"]
    assert len(apart(Other, TableOptionsDict)) == 1


def test_the_calls_take_those_keywords() -> None:
    assert nyala.open.__annotations__["options"] == "Unpack[StoreOptionsDict]"
    assert Database.create_table.__annotations__["table_options"] == "Unpack[TableOptionsDict]"


def test_options_reach_the_store_and_the_table(tmp_path: Path) -> None:
    options: nyala.StoreOptionsDict = {"maintenance": "off", "durability": "os", "limits": {"columns": 2}}
    of_table: nyala.TableOptionsDict = {"comment": "of two", "history_max_age_seconds": 60}
    with nyala.open(tmp_path, **options) as db:
        made = db.create_table("t", data={"k": [1], "v": [2]}, primary_key=["k"], **of_table)
        assert made.describe()["options"] == {**of_table, "maintenance": "on"}
        assert made.upsert({"k": [1]}).durability == "os"
        with pytest.raises(nyala.InvalidArgumentError, match="at most 2"):
            made.alter().add_column("more", "int64").apply()
