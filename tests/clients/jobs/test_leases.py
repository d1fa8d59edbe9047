"""Runs at the same time: one works and others are told who; one that died is taken over, one that slept is stopped."""

from __future__ import annotations

import json
import os
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nyala.clients.api.database import Database
from nyala.clients.api.table import Table
from nyala.clients.jobs import lease, under_way
from nyala.clients.jobs.backup import parts
from nyala.clients.jobs.copy_job import SplitTask
from nyala.clients.jobs.folder import Folder
from nyala.clients.jobs.lease import FolderLease, Holder
from nyala.clients.jobs.under_way import TableUnderWay
from nyala.jobs import backup, checksum, copy_table, export, list_backups, restore
from nyala.schemas.errors import AlreadyPresentError, ConflictError, UnavailableError
from nyala.schemas.table.alter import RenameTable
from tests.clients.jobs.job_rows import SCHEMA, rows
from tests.clients.jobs.pairs_campaign import Campaign

OWNER = rf"another run \(process {os.getpid()} on .*\): wait for it to end"


@pytest.mark.parametrize("seed", [0, 3])
def test_pairs_of_runs_at_once(tmp_path: Path, seed: int) -> None:
    """Every success is checked by the campaign; whether two runs meet is up to the threads, so it is repeated."""
    seen: Counter[str] = Counter()
    for turn in range(10):
        folder = tmp_path / str(turn)
        folder.mkdir()
        campaign = Campaign(seed, folder)
        campaign.run(12)
        seen += campaign.counts
        if seen["backups"] and seen["refused: UNAVAILABLE"]:
            return
    pytest.fail(f"no backup was made, or no run met another: {dict(seen)}")


def test_the_one_at_work_is_named(
    source: Database, homes: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a backup or an export writes its first file, another is begun."""
    refused: list[str] = []
    write = parts._write_file

    def write_and_try(*given: object) -> object:
        if not refused:
            refused.append("")
            with pytest.raises(UnavailableError, match=OWNER) as caught:
                run()
            refused.append(caught.value.message)
        return write(*given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(parts, "_write_file", write_and_try)
    for run in (lambda: backup(source, "homes", tmp_path / "b"), lambda: export(source, "homes", tmp_path / "e")):
        refused.clear()
        run()
        assert len(refused) == 2
    assert len(list_backups(tmp_path / "b")) == 1
    assert not list(tmp_path.rglob("_lease*"))


def dead_claim(folder: Path, name: str, **of: str) -> Path:
    """Write the claim of a run of another machine."""
    holder = Holder.me().model_copy(update={"run": "f" * 32, "host": "elsewhere", "machine": "another", **of})
    path = folder / f"{name}.{holder.run}.json"
    path.write_text(json.dumps({"holder": holder.model_dump(), "is_held": True}))
    return path


def test_a_run_of_another_machine_that_died(source: Database, homes: Table, tmp_path: Path) -> None:
    """Its claim counts until the storage has seen none newer for a while, whatever any clock says."""
    backup(source, "homes", tmp_path)
    name = f"_lease-{homes.describe()['stores'][0]['store_uuid'][:8]}-{homes.describe()['table_id']}"
    claim = dead_claim(tmp_path, name, since="2099-01-01T00:00:00+00:00")
    with pytest.raises(UnavailableError, match="on elsewhere, since 2099"):
        backup(source, "homes", tmp_path)
    assert claim.exists()
    written = claim.stat().st_mtime
    os.utime(claim, (written - lease.LEASE_SECONDS + 20, written - lease.LEASE_SECONDS + 20))
    with pytest.raises(UnavailableError, match="on elsewhere"):
        backup(source, "homes", tmp_path)
    os.utime(claim, (written - lease.LEASE_SECONDS - 20, written - lease.LEASE_SECONDS - 20))
    assert backup(source, "homes", tmp_path).kind == "increment"
    assert not list(tmp_path.glob("_lease*"))


def test_a_process_of_this_machine_that_died_is_taken_over_at_once(tmp_path: Path) -> None:
    for gone in ({"pid": 2**22 + 1}, {"born": "1"}):  # no such process; its number is another's by now
        holder = Holder.me().model_copy(update=gone)
        assert holder.is_gone and not Holder.me().is_gone
        claim = tmp_path / f"x.{holder.run}.json"
        claim.write_text(json.dumps({"holder": holder.model_dump(), "is_held": True}))
        with FolderLease(Folder.at(tmp_path), "x", "x"):
            assert not claim.exists()


def test_of_many_one_has_it(tmp_path: Path) -> None:
    """Eight threads take it over and over; no two have it at once, and it is always given back."""
    inside, most, taken = [0], [0], [0]
    lock = threading.Lock()

    def work() -> None:
        for _ in range(12):
            try:
                with FolderLease(Folder.at(tmp_path), "x", "x") as held:
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                        taken[0] += 1
                    held.check()
                    with lock:
                        inside[0] -= 1
            except UnavailableError:
                continue

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] and taken[0] > 0
    assert not list(tmp_path.iterdir())


def test_a_run_that_was_taken_over_publishes_nothing(
    source: Database,
    homes: Table,
    make_database: Callable[[], Database],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that a machine had put to sleep: the other takes its claim away, and finishes the backup."""
    write = parts._write_file
    done: list[object] = []

    def write_after_the_other(*given: object) -> object:
        if not done:
            done.append(None)
            for claim in tmp_path.glob("_lease*"):
                claim.unlink()
            done[0] = backup(source, "homes", tmp_path)
        return write(*given)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(parts, "_write_file", write_after_the_other)
    with pytest.raises(ConflictError, match=r"taken over by another run.*nothing was published"):
        backup(source, "homes", tmp_path, workers=1)
    (made,) = list_backups(tmp_path)
    target = make_database()
    assert restore(target, tmp_path, "homes").verified
    assert made.until == done[0].until  # type: ignore[attr-defined]
    homes.delete({"id": [3]})
    assert backup(source, "homes", tmp_path).kind == "increment"


def test_a_note_that_must_be_new(tmp_path: Path) -> None:
    folder, holder = Folder.at(tmp_path), Holder.me()
    folder.write_model("a", holder, only_new=True)
    with pytest.raises(AlreadyPresentError):
        folder.write_model("a", Holder.me(), only_new=True)
    assert folder.read_model("a", Holder) == holder
    assert folder.names() == ["a"]


def test_one_restore_at_a_time(source: Database, homes: Table, make_database: Callable[[], Database]) -> None:
    """A table under way belongs to one run; who takes it over from a dead one keeps that one from finishing it."""
    target = make_database()
    like = source._store.describe_table("homes")
    like = like.model_copy(update={"options": like.options.model_copy(update={"comment": "said"})})

    def begun() -> TableUnderWay:
        return TableUnderWay(target._store, "done", "x", like, "here")

    with begun() as first:
        first.note([1, 2])
        with pytest.raises(UnavailableError, match=OWNER), begun():
            pass
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(under_way, "LEASE_SECONDS", -1)
            second = begun().__enter__()
        assert second.done == [1, 2]
        with pytest.raises(ConflictError):
            first.note([1, 2, 3])
        with pytest.raises(ConflictError):
            first.complete()
    second.note([7])
    second.__exit__()
    with begun() as third:  # the second has let it go
        assert third.done == [7]
        third.complete()
    assert target.tables() == ["done"]
    assert target.table("done").describe()["options"]["comment"] == "said"


def test_restores_and_copies_at_once(
    source: Database, homes: Table, make_database: Callable[[], Database], tmp_path: Path
) -> None:
    """Two that make one table: at least one does, and what has the name has all rows."""
    backup(source, "homes", tmp_path)
    target, wanted = make_database(), checksum(source, "homes")
    now = source.now()
    for turn in range(6):
        name, outcomes = f"homes {turn}", []

        def run(name: str = name, outcomes: list = outcomes, copies: bool = turn % 2 == 1) -> None:
            try:
                if copies:
                    copy_table(source, target, "homes", name=name, as_of=now)
                else:
                    restore(target, tmp_path, "homes", name=name)
                outcomes.append("made")
            except (UnavailableError, AlreadyPresentError, ConflictError) as error:
                outcomes.append(error.code)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 2 and "made" in outcomes
        assert checksum(target, name).is_same(wanted)
    assert target.tables() == [f"homes {turn}" for turn in range(6)]


@pytest.mark.parametrize("moment", ["as it has made its table", "as it writes"])
def test_of_two_copies_begun_at_once_one_works(
    source: Database, homes: Table, make_database: Callable[[], Database], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Both have looked for an unfinished copy before either makes its table, whose name has the run's own snapshot."""
    target = make_database()
    is_ready, may_make = threading.Event(), threading.Event()
    refused: list[str] = []
    create, write = under_way.create_like, SplitTask.write

    def later() -> None:
        with pytest.raises(UnavailableError) as caught:
            copy_table(source, target, "homes", name="c")
        refused.append(caught.value.message)

    thread = threading.Thread(target=later)

    def let_the_later_one_run() -> None:
        if not may_make.is_set():
            may_make.set()
            thread.join()

    def create_in_turn(*given: Any) -> object:
        if threading.current_thread() is thread:
            is_ready.set()
            may_make.wait()
            return create(*given)
        made = create(*given)
        if moment == "as it has made its table":
            let_the_later_one_run()
        return made

    def write_in_turn(task: SplitTask) -> int:
        let_the_later_one_run()
        return write(task)

    monkeypatch.setattr(under_way, "create_like", create_in_turn)
    monkeypatch.setattr(SplitTask, "write", write_in_turn)
    thread.start()
    is_ready.wait()
    made = copy_table(source, target, "homes", name="c", workers=1)
    assert made.rows == 500
    (message,) = refused
    assert re.search(
        OWNER if moment == "as it writes" else "another run of the same job has just made table 'c.copying-.*'", message
    )
    assert target.tables() == ["c"]


def test_a_copy_whose_name_was_taken_leaves_nothing(
    source: Database, homes: Table, target: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another copy, of another snapshot, ends first: a copy after the drop of that one has the rows of now."""
    write = SplitTask.write
    before = source.now()
    turns = ["another"]

    def write_after_the_other(task: SplitTask) -> int:
        if turns:
            turns.clear()
            copy_table(source, target, "homes", name="c", as_of=before)
        return write(task)

    monkeypatch.setattr(SplitTask, "write", write_after_the_other)
    with pytest.raises(AlreadyPresentError, match="'c' was created during the job, so the rows of the job are dropped"):
        copy_table(source, target, "homes", name="c", workers=1)
    assert target.tables() == ["c"]
    target.drop_table("c")
    homes.insert(rows(range(500, 510)))
    made = copy_table(source, target, "homes", name="c")
    assert (made.rows, made.resumed) == (510, False)


def test_a_copy_that_some_servers_have_renamed_is_not_dropped(
    source: Database, homes: Table, target: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that have renamed it refuse to describe it; the others would drop their rows alone."""
    renamed = TableUnderWay._alter

    def half_renamed(self: TableUnderWay, *steps: Any) -> Any:
        if not any(isinstance(step, RenameTable) for step in steps):
            return renamed(self, *steps)
        monkeypatch.setattr(type(self._service), "describe_table", refuses)
        raise AlreadyPresentError("table 'c' already exists")

    def refuses(*_: object) -> None:
        raise ConflictError("the servers describe the table differently")

    monkeypatch.setattr(TableUnderWay, "_alter", half_renamed)
    with pytest.raises(ConflictError, match="differently"):
        copy_table(source, target, "homes", name="c", workers=1)
    assert len(target.tables()) == 1


def test_leases_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_database: Callable[[], Database]):
    monkeypatch.setattr(lease, "_RENEWALS", 600)
    with FolderLease(Folder.at(tmp_path), "x", "x") as held:
        (claim,) = tmp_path.iterdir()
        written = claim.stat().st_mtime_ns
        for _ in range(200):
            if claim.stat().st_mtime_ns > written:
                break
            threading.Event().wait(0.05)
        assert claim.stat().st_mtime_ns > written
        held.check()
        claim.unlink()
        with pytest.raises(ConflictError):
            held.check()
    source = make_database()
    table = source.create_table("t", SCHEMA, ["id"])
    table.insert(rows(range(3)))
    with TableUnderWay(source._store, "y", "x", source._store.describe_table("t"), "here") as made:
        version = source.table("x").describe()["schema_version"]
        for _ in range(200):
            if source.table("x").describe()["schema_version"] > version:
                break
            threading.Event().wait(0.05)
        assert source.table("x").describe()["schema_version"] > version
        made.note([1])


def test_a_lease_without_a_heartbeat_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(lease, "Heartbeat", fail)
        with pytest.raises(RuntimeError, match="can't start"):
            FolderLease(Folder.at(tmp_path), "x", "x").__enter__()
    with FolderLease(Folder.at(tmp_path), "x", "x") as held:
        held.check()
