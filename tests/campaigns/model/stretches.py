"""A table of some thousand rows in pages of 1,024, beside a model of whole columns: what few rows never have.

Rows are written in stretches, whose cells are of one style, or NULL; columns have random types, encodings and
``block_rows``. So pages of NULLs lie beside pages of codes, dictionaries become too large, blocks take every form, and
kernels read several pages at once. Each step is checked by several ways to read, now and at earlier moments.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import nyala
from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.engine.cfile import stream
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.cells.timestamp import last_of
from nyala.schemas.protocol.service import MaintenanceKind
from tests.campaigns.matrix.cells import cells
from tests.campaigns.matrix.test_matrix import check_cells
from tests.campaigns.options import stored, unlocked
from tests.campaigns.options import table as table_options
from tests.doubles.clock import ManualClock

from .stretch_columns import (
    KEYS,
    ROWS,
    Column,
    Filter,
    State,
    combined,
    random_column,
    random_cuts,
    random_filter,
    random_keys,
    word,
)
from .subjects import crashed

OPTIONS = StoreOptions(maintenance="off", wal_segment_bytes=1 << 16)
UNUSUAL: tuple[dict[str, Any], ...] = (
    {},
    {"page_cache_bytes": 1, "scan_batch_bytes": 1 << 14},
    {"page_cache_bytes": 3_000},
    {"direct_load_bytes": 1, "direct_load_unsorted_bytes": 1, "scan_threads": 1},
    {"key_index_bytes": 0, "scan_threads": 1},
)
"""Options of stores: pages that are not kept and short chunks; rows read without the rest of their pages; batches that
become rowsets; keys that are searched."""
WIDER = {"int8": "int16", "int16": "int32", "int32": "int64", "float": "double", "varchar(9)": "string"}
ALL = np.ones(ROWS, np.bool_)
_NOT_GROUPED = frozenset({"float", "double"})
_NOT_ASSIGNED = frozenset({"binary", "date", "timestamp[us]"})
"""Types without a literal in the expressions of statements."""


class Stretches:
    """One table, in a store on a disk in memory; ``done`` tells what was done to it."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self._options = OPTIONS.model_copy(update=random.choice(UNUSUAL))
        stream.WORTH_PARTS = 0  # the pages are short; rows are read alone all the same, where no page is kept
        self._history = random.choice([10, 7 * 24 * 3600])
        self._microseconds = 1_700_000_000_000_000
        self._fs = MemoryFileSystem()
        self.store = self._open()
        self.database = Database(self.store)
        self._keys = dict(zip("kl", random.choice(KEYS)(), strict=False))
        self.columns = [random_column(random, f"c{number}") for number in range(random.randint(3, 7))]
        self._added = len(self.columns)
        fields = [pa.field(name, array.type, False) for name, array in self._keys.items()]
        options = {c.name: {"type": c.kind, **c.storage(random)} for c in self.columns}
        options |= {name: {"block_rows": random.choice([1024, None])} for name in self._keys}
        self.database.create_table(
            "t",
            pa.schema([*fields, *(pa.field(c.name, c.type, c.nullable) for c in self.columns)]),
            list(self._keys),
            column_options=options,
            partition_by=[nyala.hash(*self._keys, buckets=2)] if random.random() < 0.2 else [],
            **table_options(history_max_age_seconds=self._history, row_column=random.random() < 0.3),
        )
        self.done: list[str] = [f"{self._options.model_dump(exclude_defaults=True)} {options}"]
        self.state = State(np.zeros(ROWS, np.bool_), {c.name: pa.nulls(ROWS, c.type) for c in self.columns})
        self.moments: list[tuple[int, State]] = [(self.database.now(), self.state)]

    @property
    def table(self) -> Table:
        return self.database.table("t")

    def run(self, count: int) -> None:
        """Do and check ``count`` random things; a failure carries what was done."""
        things = [self.write] * 8 + [self.maintain] * 4 + [self.write_rows, self.delete, self.update_where]
        things += [self.alter, self.restart, self.advance]
        try:
            self._write("upsert", np.arange(ROWS)[:: self.random.choice([1, 1, 2])])
            self.table.maintain("flush")
            for _ in range(count):
                self.random.choice(things)()
                self.check()
            self.close()
        except Exception as error:
            error.add_note("\n".join(self.done))
            raise

    # --- what is done ---

    def write(self) -> None:
        op = self.random.choice(["upsert", "upsert", "update_ignore", "update_ignore", "insert_ignore"])
        self._write(op, random_keys(self.random))

    def write_rows(self) -> None:
        """Write a few rows as Python values, which is another way."""
        keys = np.sort(np.array(self.random.sample(range(ROWS), self.random.randint(1, 3))))
        self._write("upsert", keys, as_values=True)

    def delete(self) -> None:
        keys = random_keys(self.random)
        self._note("delete", keys)
        result = self.table.delete_ignore(self._key_rows(keys))
        alive = self.state.alive.copy()
        assert result.applied == int(alive[keys].sum())
        alive[keys] = False
        self._become(replace(self.state, alive=alive))

    def update_where(self) -> None:
        """Change, or delete, the rows that a filter selects, by one statement."""
        (where, mask), column = self._filter(self.state), self.random.choice(self.columns)
        chosen = np.flatnonzero(self.state.alive & mask)
        if self.random.random() < 0.3 or column.kind in _NOT_ASSIGNED:
            self._note("delete_where", where)
            result, alive = self.table.delete_where(where), self.state.alive.copy()
            alive[chosen] = False
            after = replace(self.state, alive=alive)
        else:
            cell = column.kept(cells(column.type, "few", np.array([self.random.randrange(99)])))[0].as_py()
            cell = None if column.nullable and self.random.random() < 0.3 else cell
            self._note("update_where", {column.name: word(cell)}, where)
            result = self.table.update_where({column.name: word(cell)}, where)
            after = self.state.with_cells(column.name, chosen, pa.array([cell] * len(chosen), column.type))
        assert result.applied == len(chosen)
        self._become(after)

    def maintain(self) -> None:
        op = self.random.choice(["flush", "flush", "flush_deltas", "compact", *MaintenanceKind])
        self._note("maintain", str(op))
        self.table.maintain(op)

    def alter(self) -> None:
        """Add, widen or drop a column, or store one in another way from then on."""
        random, column = self.random, self.random.choice(self.columns)
        what, alteration = random.choice(["add", "widen", "widen", "drop", "storage"]), self.table.alter()
        self._note("alter", what, column)
        if what == "add" and len(self.columns) < 9:
            self._add_column(alteration)
        elif what == "widen" and column.kind in WIDER:
            self._widen(alteration, column)
        elif what == "drop" and len(self.columns) > 2:
            alteration.drop_column(column.name).apply()
            self.columns.remove(column)
        else:
            storage = column.storage(random)
            alteration.set_encoding(column.name, storage["encoding"])
            alteration.set_block_rows(column.name, storage["block_rows"]).apply()

    def restart(self) -> None:
        stop = self.random.choice(["close", "kill", "power"])
        self._note("restart", stop)
        if stop == "close":
            self.store.close()
        else:
            self._fs = crashed(self.store, self._fs, self.random if stop == "power" else None)
        self._microseconds += 1_000
        self.store = self._open()
        self.database = Database(self.store)

    def advance(self) -> None:
        seconds = self.random.randint(0, 8)
        self._note("advance", seconds)
        self._microseconds += seconds * 1_000_000
        self._clock.advance(seconds * 1_000_000)

    # --- what is checked ---

    def check(self) -> None:
        past = [one for one in self.moments if one[0] >= last_of(self._microseconds - self._history * 1_000_000)]
        self._check_scan(None, self.state)
        if past:
            self._check_scan(*self.random.choice(past))
        checks = [self._check_filter, self._check_groups, self._check_measures, self._check_order]
        for check in self.random.sample(checks, 2):
            check(*self.random.choice([(None, self.state), *self.random.sample(past, min(len(past), 1))]))
        if self.random.random() < 0.3:
            self._check_get()
        if len(past) > 1 and self.random.random() < 0.3:
            self._check_changes(*sorted(self.random.sample(past, 2), key=lambda one: one[0]))

    def _check_scan(self, moment: int | None, state: State, where: str | None = None, mask: np.ndarray = ALL) -> None:
        names, ordered = self._names, self.random.random() < 0.5
        if self.random.random() < 0.4:
            others = [column.name for column in self.columns]
            names = [*self._keys, *self.random.sample(others, self.random.randint(0, len(others)))]
        self._note("# scan", names, where, moment, ordered)
        found = self.table.scan(names, where=where, as_of=moment, ordered=ordered).to_arrow()
        self._compare(found if ordered else self._in_order(found), self._rows(state, names, mask))

    def _check_filter(self, moment: int | None, state: State) -> None:
        self._check_scan(moment, state, *self._filter(state))

    def _check_groups(self, moment: int | None, state: State) -> None:
        where, mask = self._filter(state) if self.random.random() < 0.4 else (None, ALL)
        known = [column.name for column in self.columns if column.kind not in _NOT_GROUPED]
        names = self.random.sample(known, min(len(known), self.random.choice([1, 1, 2])))
        measures = {"n": ("*", "count"), "least": ("k", "min"), "most": ("k", "max")}
        self._note("# groups", names, where, moment)
        found = self.table.scan(where=where, as_of=moment).aggregate(measures, names)
        rows = self._rows(state, [*names, "k"], mask)
        if not names:
            assert found["n"].to_pylist() == [rows.num_rows]
            return
        expected = rows.group_by(names).aggregate([([], "count_all"), ("k", "min"), ("k", "max")])
        expected = expected.rename_columns([*names, *measures]).cast(found.schema)
        order = [(name, "ascending") for name in names]
        self._compare(found.sort_by(order), expected.sort_by(order))

    def _check_measures(self, moment: int | None, state: State) -> None:
        where, mask = self._filter(state) if self.random.random() < 0.5 else (None, ALL)
        rows = self._rows(state, self._names, mask)
        measures, expected = {"rows": ("*", "count")}, {"rows": rows.num_rows}
        is_simple = self.random.random() < 0.5  # kernels fold what has no bounds of strings
        for column in self.columns:
            array = rows[column.name].combine_chunks()
            numbers: dict[str, Any] = {"count": len(array) - array.null_count}
            if not (column.logical.is_variable and is_simple):
                numbers |= pc.min_max(array).as_py()
            if pa.types.is_integer(array.type) and self.random.random() < 0.7:
                numbers["sum"] = pc.sum(pc.cast(array, pa.decimal128(38, 0))).as_py()
            measures |= {f"{function} {column.name}": (column.name, function) for function in numbers}
            expected |= {f"{function} {column.name}": number for function, number in numbers.items()}
        self._note("# measures", list(measures), where, moment)
        assert self.table.scan(where=where, as_of=moment).aggregate(measures).to_pylist() == [expected]

    def _check_order(self, moment: int | None, state: State) -> None:
        """The first rows in the order of a column."""
        known = [column.name for column in self.columns if column.kind not in _NOT_GROUPED]
        name, limit = self.random.choice([*known, "k"]), self.random.choice([1, 50, 1_500])
        self._note("# order", name, limit, moment)
        found = self.table.scan(order_by=[name], as_of=moment, limit=limit, offset=7).to_arrow()
        rows = self._rows(state, self._names)
        order = pc.sort_indices(rows, [(each, "ascending") for each in dict.fromkeys([name, *self._keys])])
        self._compare(found, rows.take(order[7 : 7 + limit]))

    def _check_get(self) -> None:
        keys = np.array(self.random.sample(range(ROWS), self.random.choice([3, 40, 3_000])))
        self._note("# get", keys)
        found = self.table.get_many(self._key_rows(keys))
        rows = self._all(self.state, self._names)
        self._compare(found, rows.take(pa.array(keys[self.state.alive[keys]])))
        for key in keys[:3].tolist():
            one = self.table.get({name: array[key].as_py() for name, array in self._keys.items()})
            assert repr(one) == repr(rows.slice(key, 1).to_pylist()[0] if self.state.alive[key] else None)

    def _check_changes(self, first: tuple[int, State], last: tuple[int, State]) -> None:
        """What was, with the changes until then, is what was later."""
        (since, old), (until, new) = first, last
        self._note("# changes", since, until)
        feed = self.table.changes(since, until, before=True, ordered=True).to_arrow().combine_chunks()
        names, whole = self._names, self._all(old, self._names)
        had, has = pc.not_equal(feed["_op"], "insert"), pc.not_equal(feed["_op"], "delete")
        before = feed.filter(had).select([f"_before_{name}" for name in names]).rename_columns(names)
        places = self._places(feed.filter(had))
        assert old.alive[places].all()
        self._compare(before.cast(whole.schema), whole.take(pa.array(places)))
        same = old.alive.copy()
        same[self._places(feed)] = False
        after = pa.concat_tables([whole.filter(pa.array(same)), feed.filter(has).select(names).cast(whole.schema)])
        self._compare(self._in_order(after), self._rows(new, names))

    def close(self) -> None:
        """Stop, and verify the files."""
        self.store.close()
        report = verify_store(unlocked(self._fs))
        assert report.is_sound, report.problems

    # --- inner workings ---

    def _write(self, op: str, keys: np.ndarray, as_values: bool = False) -> None:
        """Write rows with some of the columns, in up to three stretches."""
        random, alive = self.random, self.state.alive
        chosen = [c for c in self.columns if random.random() < 0.6 or (not c.nullable and op != "update_ignore")]
        chosen = chosen or self.columns
        ends = random_cuts(random, len(keys))
        parts = [keys[first:last] for first, last in zip([0, *ends], [*ends, len(keys)], strict=True)]
        new: dict[str, pa.Array] = {}
        for column in chosen:
            stretches = [column.stretch(random, part, self.state.cells[column.name]) for part in parts]
            new[column.name] = pa.concat_arrays(stretches)
        rows = self._key_rows(keys)
        for name, array in new.items():
            rows = rows.append_column(name, array)
        self._note(op, keys, {name: str(array[:3].to_pylist())[:60] for name, array in new.items()})
        result = self.table.write(rows.to_pylist() if as_values else rows, op)
        takes = {"upsert": ALL[keys], "insert_ignore": ~alive[keys], "update_ignore": alive[keys]}[op]
        assert (result.applied, result.ignored) == (int(takes.sum()), int((~takes).sum()))
        taken, born = keys[takes], keys[takes & ~alive[keys]]
        after = replace(self.state, alive=alive | np.isin(np.arange(ROWS), taken))
        for column in self.columns:
            after = after.with_cells(column.name, born, pa.nulls(len(born), column.type))
            if column.name in new:
                after = after.with_cells(column.name, taken, new[column.name].filter(pa.array(takes)))
        self._become(after)

    def _add_column(self, alteration: Any) -> None:
        column = random_column(self.random, f"c{self._added}")
        self._added += 1
        cell = column.kept(cells(column.type, "few", np.array([self._added])))[0].as_py()
        cell = None if column.nullable and self.random.random() < 0.5 else cell
        storage = column.storage(self.random)
        alteration.add_column(column.name, column.kind, column.nullable, read_default=cell, **storage).apply()
        shown = {column.name: pa.array([cell] * ROWS, column.type)}
        self.columns.append(column)
        self.state = replace(self.state, cells=self.state.cells | shown)
        self.moments = [(moment, replace(state, cells=state.cells | shown)) for moment, state in self.moments]

    def _widen(self, alteration: Any, column: Column) -> None:
        alteration.widen_column(column.name, WIDER[column.kind]).apply()
        wider = replace(column, kind=WIDER[column.kind])
        self.columns[self.columns.index(column)] = wider

        def widened(state: State) -> State:
            return replace(state, cells=state.cells | {column.name: state.cells[column.name].cast(wider.type)})

        self.state = widened(self.state)
        self.moments = [(moment, widened(state)) for moment, state in self.moments]

    def _become(self, state: State) -> None:
        self.state = state
        self.moments.append((self.database.now(), state))

    def _note(self, *words: Any) -> None:
        self.done.append(" ".join(_told(each) for each in words))

    def _filter(self, state: State) -> Filter:
        one = random_filter(self.random, self.columns, state)
        if self.random.random() < 0.6:
            return one
        return combined(self.random, one, random_filter(self.random, self.columns, state))

    @property
    def _names(self) -> list[str]:
        return [*self._keys, *(column.name for column in self.columns)]

    def _key_rows(self, keys: np.ndarray) -> pa.Table:
        return pa.table({name: array.take(pa.array(keys)) for name, array in self._keys.items()})

    def _all(self, state: State, names: list[str]) -> pa.Table:
        """Return the cells of all keys."""
        arrays = {**self._keys, **state.cells}
        fields = {field.name: field for field in self.table.schema}
        return pa.table([arrays[name] for name in names], pa.schema([fields[name] for name in names]))

    def _rows(self, state: State, names: list[str], mask: np.ndarray = ALL) -> pa.Table:
        """Return the rows that there are, among those in ``mask``, in key order."""
        return self._all(state, names).filter(pa.array(state.alive & mask))

    def _in_order(self, rows: pa.Table) -> pa.Table:
        return rows.sort_by([(name, "ascending") for name in self._keys])

    def _places(self, rows: pa.Table) -> np.ndarray:
        """Return the keys of rows, as their places among all."""
        name = list(self._keys)[-1]
        return pc.index_in(rows[name].combine_chunks(), self._keys[name]).to_numpy()

    def _compare(self, found: pa.Table, expected: pa.Table) -> None:
        check_cells(found.combine_chunks(), expected.combine_chunks())

    def _open(self) -> Store:
        self._clock = ManualClock(self._microseconds)
        store = Store.open(self._fs, stored(self._options), self._clock)
        assert not store.health().damaged, "the disk keeps what was synced"
        return store


def _told(thing: Any) -> str:
    if isinstance(thing, np.ndarray):
        return f"[{len(thing)} keys: {', '.join(map(str, thing[:3]))} ... {thing[-1] if len(thing) else ''}]"
    return str(thing)
