"""One table with a column for every type, encoding and nullability, taken through every state that a cell can be in.

``MatrixTable.reach(state)`` makes the table in one of ``STATES``; each goes through those before it. The rows that it
should hold are kept beside it as Arrow tables, now and at every moment kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.schemas.cells.encoding import COMPRESSIONS, encodings_for
from nyala.schemas.cells.literal import to_json
from nyala.schemas.cells.types import LogicalType
from nyala.schemas.table.table import TableDefinition
from tests.campaigns.matrix.kinds import KINDS, Kind, arrow

ROWS = 2500
"""More than a mini-block; odd pages at the end."""
STATES = (
    "memory",
    "flushed",
    "added",
    "updated in memory",
    "updated in REDO files",
    "updated everywhere",
    "minor compacted",
    "major compacted",
    "merged",
    "restarted",
)


@dataclass(frozen=True)
class Variant:
    """A column: a type, stored in one way."""

    name: str
    kind: Kind
    encoding: str
    compression: str
    nullable: bool
    is_added: bool = False
    default: Any = None
    """The read default of one that is added."""

    def definition(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.kind.word,
            "nullable": self.nullable,
            "encoding": self.encoding,
            "compression": self.compression,
        }


def _variants() -> list[Variant]:
    compressions = cycle(COMPRESSIONS)
    found: list[Variant] = []
    for kind in KINDS:
        stem = kind.word.partition("(")[0].partition("[")[0] + "".join(filter(str.isdigit, kind.word))
        for encoding in encodings_for(kind.logical):
            name = f"{stem}_{encoding}"
            found += [
                Variant(f"{name}_null", kind, encoding, next(compressions), True),
                Variant(f"{name}_full", kind, encoding, next(compressions), False),
                Variant(f"{name}_added", kind, encoding, next(compressions), True, True),
                Variant(f"{name}_default", kind, encoding, next(compressions), False, True, kind.cells[0]),
            ]
        found.append(Variant(f"{stem}_last", kind, encodings_for(kind.logical)[0], "none", True, True, kind.cells[-1]))
    return found


VARIANTS = _variants()
BASE = [variant for variant in VARIANTS if not variant.is_added]
ADDED = [variant for variant in VARIANTS if variant.is_added]


class MatrixTable:
    """The table, and what it should hold: ``rows`` now, ``past`` at each moment kept, in the order of ids."""

    def __init__(self, directory: Path, seed: int = 0) -> None:
        self._directory = directory
        self._random = Random(seed)
        self.db: Database = nyala.open(directory, maintenance="off")
        columns = [{"name": "id", "type": "int64", "nullable": False}, *(variant.definition() for variant in BASE)]
        definition = {"name": "matrix", "columns": columns, "primary_key": ["id"]}
        self.table: Table = self.db.create_table_as(TableDefinition.model_validate(definition))
        self.variants = BASE
        self.rows = self.table.schema.empty_table()
        self.past: list[tuple[int, pa.Table]] = []

    def reach(self, state: str) -> None:
        """Take the table, new, to ``state``."""
        for step in STATES[: STATES.index(state) + 1]:
            getattr(self, "_" + step.replace(" ", "_").lower())()

    def close(self) -> None:
        self.db.close()

    def _memory(self) -> None:
        self._insert(0, ROWS)

    def _flushed(self) -> None:
        self.table.maintain("flush")
        self._keep()

    def _added(self) -> None:
        alteration = self.table.alter()
        for variant in ADDED:
            parts = variant.definition()
            default = None if variant.default is None else _default(variant)
            alteration.add_column(
                parts.pop("name"), parts.pop("type"), parts.pop("nullable"), read_default=default, **parts
            )
        alteration.apply()
        self.variants = BASE + ADDED
        self.rows = self._with_added(self.rows)
        self.past = [(moment, self._with_added(rows)) for moment, rows in self.past]

    def _updated_in_memory(self) -> None:
        self._update(400)
        self._insert(ROWS, 100)
        self._keep()

    def _updated_in_redo_files(self) -> None:
        self.table.maintain("flush_deltas")

    def _updated_everywhere(self) -> None:
        self._update(300)
        self.table.maintain("flush_deltas")
        self._keep()
        self._update(200)
        self._keep()
        self._delete(100)

    def _minor_compacted(self) -> None:
        self.table.maintain("flush_deltas")
        self.table.maintain("minor_compact")

    def _major_compacted(self) -> None:
        self.table.maintain("major_compact")

    def _merged(self) -> None:
        self._keep()
        self._update(200)
        self.table.maintain("flush")
        self.table.maintain("compact")

    def _restarted(self) -> None:
        self._update(100)
        self.db.close()
        self.db = nyala.open(self._directory, maintenance="off")
        self.table = self.db.table("matrix")

    def _keep(self) -> None:
        self.past.append((self.db.now(), self.rows))

    def _insert(self, first: int, count: int) -> None:
        ids = list(range(first, first + count))
        batch = self._batch(ids, self.variants)
        assert self.table.insert(batch).applied == count
        self.rows = pa.concat_tables([self.rows, self._cut(batch)])

    def _update(self, count: int) -> None:
        """Change all columns of some rows, a few columns of some more."""
        known = self.rows["id"].to_pylist()
        for share, variants in ((2, self.variants), (2, self._random.sample(self.variants, 20))):
            ids = sorted(self._random.sample(known, count // share))
            batch = self._batch(ids, variants)
            assert self.table.update(batch).applied == len(ids)
            self._patch(self._cut(batch))

    def _delete(self, count: int) -> None:
        ids = self._random.sample(self.rows["id"].to_pylist(), count)
        assert self.table.delete({"id": ids}).applied == count
        gone = np.isin(self.rows["id"].to_numpy(), ids)
        self.rows = self.rows.filter(pa.array(~gone))

    def _patch(self, changed: pa.Table) -> None:
        places = np.searchsorted(self.rows["id"].to_numpy(), changed["id"].to_numpy())
        source = np.arange(self.rows.num_rows)
        source[places] = self.rows.num_rows + np.arange(changed.num_rows)
        for name in changed.schema.names[1:]:
            cells = pa.concat_arrays([self.rows[name].combine_chunks(), changed[name].combine_chunks()])
            place = self.rows.schema.get_field_index(name)
            self.rows = self.rows.set_column(place, self.rows.schema.field(name), cells.take(pa.array(source)))

    def _with_added(self, rows: pa.Table) -> pa.Table:
        for variant in ADDED:
            rows = rows.append_column(
                self.table.schema.field(variant.name), variant.kind.array([variant.default] * rows.num_rows)
            )
        return rows

    def _batch(self, ids: list[int], variants: list[Variant]) -> pa.Table:
        """Return rows as they are sent: long texts in varchar columns are not cut."""
        columns: dict[str, Any] = {"id": pa.array(ids, pa.int64())}
        for variant in variants:
            cells = self._cells(variant, len(ids))
            sent = LogicalType("string") if variant.kind.logical.is_text else variant.kind.logical
            columns[variant.name] = arrow(sent, cells)
        return pa.table(columns)

    def _cut(self, batch: pa.Table) -> pa.Table:
        """Return rows as they are kept."""
        fields = [self.table.schema.field(name) for name in batch.schema.names]
        lengths = {variant.name: variant.kind.logical.length for variant in self.variants}
        arrays = [
            pa.array([cell and cell[: lengths[name]] for cell in batch[name].to_pylist()], pa.string())
            if lengths.get(name)
            else batch[name].combine_chunks()
            for name in batch.schema.names
        ]
        return pa.table(arrays, schema=pa.schema(fields))

    def _cells(self, variant: Variant, count: int) -> list[Any]:
        """Return random cells: any, then runs, then few different ones without NULL; huge ones here and there."""
        random, cells = self._random, variant.kind.cells
        any_ = [*cells, None] if variant.nullable else list(cells)
        found = random.choices(any_, k=count // 3)
        while len(found) < count * 2 // 3:
            found += [random.choice(any_)] * random.randint(1, 120)
        found = found[: count * 2 // 3] + random.choices(random.sample(cells, 2), k=count - count * 2 // 3)
        for huge in variant.kind.seldom[: 1 if count < 1000 else 2]:
            found[random.randrange(count)] = huge
        return found


def _default(variant: Variant) -> Any:
    """Return the read default as a user gives it."""
    return to_json(variant.default)
