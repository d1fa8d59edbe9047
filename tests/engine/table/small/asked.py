"""Asked: a write by one of several threads, and its answer or error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from nyala.schemas.rows.write import WriteResult
from nyala.schemas.table.partition_schema import HashLevel
from nyala.schemas.table.table import TableDefinition


@dataclass
class Asked(ABC):
    """A write, and its answer or error."""

    outcome: list[Any] = field(default_factory=list, init=False)

    @abstractmethod
    def write(self, store: Store) -> WriteResult:
        """Make the write. Raises StoreError."""

    def run(self, store: Store) -> None:
        try:
            self.outcome.append(self.write(store))
        except StoreError as error:
            self.outcome.append(error)

    @property
    def result(self) -> WriteResult:
        assert isinstance(self.outcome[0], WriteResult), self.outcome
        return self.outcome[0]

    def answer(self) -> object:
        """Return the outcome without its time."""
        outcome = self.outcome[0]
        return outcome.model_copy(update={"timestamp": 0}) if isinstance(outcome, WriteResult) else repr(outcome)


def create(store: Store, name: str, schema: pa.Schema, buckets: int) -> None:
    """Create a table with the key ``k``, hashed into ``buckets`` if they are not 0, unless it is there."""
    if name not in store.tables():
        levels = [HashLevel(hash=["k"], buckets=buckets)] if buckets else []
        store.create_table(TableDefinition.from_arrow(name, schema, ["k"], partition_by=levels))
