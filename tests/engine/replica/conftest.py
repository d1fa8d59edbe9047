"""A store in a directory, which one process changes and others read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import nyala
from nyala.clients.api.database import Database
from tests.engine.replica.live_stores import SCHEMA, SMALL


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def holder(home: Path) -> Iterator[Database]:
    with nyala.open(home, **SMALL) as database:
        database.create_table("t", SCHEMA, "id")
        yield database
