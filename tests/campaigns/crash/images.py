"""Cut the power at a call of the file system, draw what may be on the disk, and check what a store makes of it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from random import Random
from unittest.mock import patch
from uuid import UUID

import pytest

from nyala.engine.fs import MemoryFileSystem, PowerFailure
from nyala.engine.fs.filesystem import FileSystem
from nyala.engine.options import StoreOptions
from nyala.engine.recovery.verify import verify_store
from nyala.engine.store import Store
from nyala.schemas.errors import StoreError
from tests.campaigns.crash.workloads import FLUSHING, OPTIONS, SCHEMA, TABLE, Batch, Run, open_store, read, row, write
from tests.campaigns.model.oracle import Key, Row
from tests.campaigns.options import unlocked

State = dict[Key, Row]


class LostError(AssertionError):
    """The store broke its promise; the text says where and how to see it again."""


@dataclass
class Tally:
    """What a campaign has seen."""

    calls: int = 0
    images: int = 0
    distinct: int = 0
    recoveries_cut: int = 0


def contents(fs: FileSystem, directory: str = "") -> Iterator[tuple[str, bytes | None]]:
    """Yield every file with its bytes and every directory with None."""
    for name in fs.list(directory):
        path = f"{directory}/{name}" if directory else name
        try:
            fs.list(path)
        except NotADirectoryError:
            file = fs.open(path)
            yield path, file.pread(0, file.size)
        else:
            yield path, None
            yield from contents(fs, path)


def run_until(
    workload: Callable[[Run], None], call: int | None, options: StoreOptions = OPTIONS
) -> tuple[Run, MemoryFileSystem]:
    """Run a workload on a new disk whose power fails before the ``call``-th change; None lets it end."""
    fs = MemoryFileSystem(crash_at=call)
    run = Run(fs, options)
    try:
        with same_identity():
            workload(run)
    except (PowerFailure, StoreError):
        if call is None or fs.operations < call:
            raise
    finally:
        if fs.crash_at is None:
            fs.crash_at = fs.operations
        run.abandon()
    return run, fs


@contextmanager
def same_identity() -> Iterator[None]:
    """Give each new store the same identity: two runs that have done the same leave the same bytes."""
    with patch("nyala.engine.store.uuid.uuid4", return_value=UUID(int=1)):
        yield


def cut_at_every_call(
    disk: Callable[[], MemoryFileSystem], act: Callable[[MemoryFileSystem], object], images: int = 3
) -> Iterator[MemoryFileSystem]:
    """Yield what may be left when the power fails at each call that ``act`` makes on a fresh ``disk``."""
    whole = disk()
    first = whole.operations
    act(whole)
    for call in range(first + 1, whole.operations + 1):
        fs = disk()
        fs.crash_at = call
        with pytest.raises(PowerFailure):
            act(fs)
        for seed in range(images):
            yield fs.crash_image(Random(seed))


def check_image(
    run: Run, image: MemoryFileSystem, settled: State | None = None, flushing: bool = False
) -> State | None:
    """Open what is on a disk after a crash and return the table's rows; raise LostError if a promise is broken.

    ``settled`` is what an earlier opening has shown already: then nothing else may be seen. None stands for "there is
    no table". With ``flushing`` the recovery flushes on the way.
    """
    try:
        store = open_store(image, FLUSHING if flushing else OPTIONS)
    except StoreError as error:
        raise LostError(f"the store cannot be opened: {error.code}: {error.message}") from error
    try:
        require_sound(store)  # also what no scan below comes to: tablets in quarantine do not keep a store from opening
        found = _check_rows(run, store, settled)
        require_sound(store)
        if run.row_column:
            require(
                verify_store(unlocked(clone(image))).is_sound,
                "whole rows differ from their columns, or files are damaged",
            )
        return found
    except StoreError as error:
        raise LostError(f"the table cannot be read: {error.code}: {error.message}") from error
    finally:
        _stop(image, store)


def require_sound(store: Store) -> None:
    """Raise LostError if the store has found a damaged file: on a disk that keeps what was synced there is none."""
    damaged = store.health().damaged
    require(not damaged, f"damaged files: {damaged}")


def _check_rows(run: Run, store: Store, settled: State | None) -> State | None:
    is_there = TABLE in store.tables()
    require(is_there in run.tables, "the table is gone" if run.tables == {True} else "the table is back")
    if not is_there:
        return None
    names = [column.name for column in store.describe_table(TABLE).columns][len(SCHEMA) :]
    require(tuple(names) in run.columns, f"the added columns are {names}, expected {run.columns}")
    found = read(store)
    allowed = [run.oracle.now()] if settled is None else [settled]
    if run.pending and settled is None:
        allowed.append(with_changes(run.oracle.now(), run.pending))
    require(found in allowed, f"read {found}\n  expected {' or '.join(map(str, allowed))}")
    for moment in run.moments:
        require(read(store, moment) == run.oracle.as_of(moment), f"the snapshot {moment} has changed")
    return found


def with_changes(state: State, batch: Batch) -> State:
    """Return the rows as they are after ``batch``."""
    return {key: row for key, row in (state | batch.plan.changes).items() if row is not None}


def check_goes_on(run: Run, image: MemoryFileSystem, random: Random, checks: Checks) -> None:
    """Open the disk, send the last batches again, write more, and lose the power again: all must be there, once."""
    expected, _ = checks.check(run, clone(image))
    if expected is None:
        return
    store = open_store(image)
    try:
        require_sound(store)
        if run.last:
            batch, answer = run.last
            require(batch.send(store) == answer, "a repeated batch got another answer")
        if run.pending:
            run.pending.send(store)
            expected = with_changes(run.oracle.now(), run.pending)
        result = write(store, "upsert", [row(7_000, 70), row(7_001, 70)])
        require(not run.moments or result.timestamp > run.moments[-1], "time has gone back")
        second = image.crash_image(random)
    finally:
        _stop(image, store)
    check_image(run, second, expected | {(key,): row(key, 70) for key in (7_000, 7_001)})


def check_cut_recoveries(run: Run, image: MemoryFileSystem, random: Random, tally: Tally, checks: Checks) -> None:
    """Cut the power again at every call of the reopening; whatever is left must open as the first image did.

    Every second reopening flushes on the way.
    """
    options = random.choice([OPTIONS, FLUSHING])
    calls = _calls_of_opening(clone(image), options)
    for call in range(1, calls + 1):
        disk = clone(image)
        disk.crash_at = call
        store = None
        try:
            store = open_store(disk, options)
        except (PowerFailure, StoreError):
            require(disk.operations >= call, f"the reopening failed before call {call}")
        finally:
            if store:
                _stop(disk, store)
        tally.recoveries_cut += 1
        disk.crash_at = None
        checks.check(run, disk.crash_image(random))


def fingerprint_of(image: MemoryFileSystem) -> int:
    """Return a number that is the same for disks that hold the same."""
    return hash(tuple(contents(image)))


class Checks:
    """``check_image`` of many disks: one that holds the same as an earlier one, durable or not, of which the same is
    expected, is not opened again."""

    def __init__(self) -> None:
        self._done: dict[object, tuple[State | None, MemoryFileSystem]] = {}

    def check(
        self, run: Run, image: MemoryFileSystem, settled: State | None = None, flushing: bool = False
    ) -> tuple[State | None, MemoryFileSystem]:
        """Return what the disk shows, and the disk as the opening has left it."""
        key = (hash(pickle.dumps(image._root)), promises_of(run), repr(settled), flushing)
        if key not in self._done:
            self._done[key] = check_image(run, image, settled, flushing), image
        return self._done[key]


def promises_of(run: Run) -> str:
    """Return all that ``check_image`` compares a disk with."""
    pending = run.pending and run.pending.plan.changes
    return repr((sorted(run.tables), sorted(run.columns), run.moments, run.oracle.versions, pending))


def clone(disk: MemoryFileSystem) -> MemoryFileSystem:
    """Return a disk with the same files, all durable."""
    copy = MemoryFileSystem()
    for path, content in contents(disk):
        if content is None:
            copy.make_directory(path)
        else:
            file = copy.create(path)
            file.append(content)
            file.sync()
            file.close()
    for path, content in [("", None), *contents(copy)]:
        if content is None:
            copy.sync_directory(path)
    copy.operations = 0
    return copy


def _calls_of_opening(disk: MemoryFileSystem, options: StoreOptions) -> int:
    store = open_store(disk, options)
    calls = disk.operations
    _stop(disk, store)
    return calls


def _stop(disk: MemoryFileSystem, store: Store) -> None:
    """End a store's threads as a power failure does: nothing more reaches the disk."""
    disk.crash_at = min(disk.operations, disk.crash_at or disk.operations)
    with suppress(PowerFailure, StoreError):
        store.close()
    disk.crash_at = None


def require(condition: bool, why: str) -> None:
    if not condition:
        raise LostError(why)


def campaign(
    workload: Callable[[Run], None],
    images: int,
    seed: int = 0,
    deep_every: int = 10,
    calls: range | None = None,
    every: int = 1,
) -> Tally:
    """Crash at every call, one in ``every``, or at ``calls``; draw ``images`` disks each time, check each distinct one.

    Every ``deep_every``-th distinct disk is also written on, and its recovery cut at each call.
    """
    tally, checks = Tally(), Checks()
    finished, disk = run_until(workload, None)
    check_image(finished, disk.crash_image(Random(seed)))
    for call in calls or range(1, disk.operations + 1, every):
        run, crashed = run_until(workload, call)
        tally.calls += 1
        seen: set[int] = set()
        for number in range(images):
            random = Random((seed << 40) + (call << 20) + number)
            image = crashed.crash_image(random)
            tally.images += 1
            if (fingerprint := fingerprint_of(image)) in seen:
                continue
            seen.add(fingerprint)
            tally.distinct += 1
            try:
                _check_deeply(run, image, random, tally, checks, tally.distinct % deep_every == 0)
            except Exception as error:
                log = "\n  ".join(list(crashed.operation_log)[-6:])
                error.add_note(f"call {call}, image {number}, seed {seed}; before it:\n  {log}")
                raise
    return tally


def _check_deeply(run: Run, image: MemoryFileSystem, random: Random, tally: Tally, checks: Checks, deep: bool) -> None:
    if deep:
        check_cut_recoveries(run, image, random, tally, checks)
        check_goes_on(run, clone(image), random, checks)
    first, opened = checks.check(run, image, flushing=tally.distinct % 2 == 0)
    if first is not None:
        # What an opening showed has been seen: no later power failure may take it back.
        checks.check(run, opened.crash_image(random), first)
