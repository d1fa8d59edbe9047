"""Objects of a bucket that were put back to an earlier state: names repeat, and what was kept by them is of another
history."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from nyala.clients.api.database import Database
from nyala.engine.bucket.directory import DirectoryObjects
from nyala.engine.checkpoint.bucket_copy import BucketCopy, FileToCopy, SameService
from nyala.engine.fs import MemoryFileSystem
from nyala.engine.fs.local import LocalFileSystem
from nyala.engine.home.bucket import BucketHome
from nyala.engine.recovery import recovery
from nyala.engine.recovery.verify_bucket import verify_bucket
from nyala.engine.store import Store
from nyala.schemas.errors import ConflictError
from nyala.schemas.store.pins import CreatePin
from tests.doubles.machines import OPTIONS, Machine

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
FIRST = {"at first": 100}


@dataclass
class Site:
    """A directory that plays a bucket, and machines with caches of their own."""

    folder: Path

    def __post_init__(self) -> None:
        self.a, self.b = self.machine(), self.machine()

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    def machine(self) -> Machine:
        return Machine(DirectoryObjects(LocalFileSystem(self.bucket)))

    def save(self) -> None:
        shutil.copytree(self.bucket / "stores/a", self.folder / "saved")

    def put_back(self, leaves_files: bool = False) -> None:
        """Let the objects of the store be those that were saved, but for files that came since."""
        for name in ("log", "manifests", *(() if leaves_files else ("tablets",))):
            shutil.rmtree(self.bucket / "stores/a" / name)
        shutil.copytree(self.folder / "saved", self.bucket / "stores/a", dirs_exist_ok=True)

    def home(self, name: str = "a") -> BucketHome:
        return self.machine().home(name)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.bucket.glob("stores/a/tablets/*/*"))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    with opened(site.a) as store:
        Database(store).create_table("t", SCHEMA, ["id"])
        put(store, "at first")
    site.save()
    return site


def opened(machine: Machine) -> Store:
    return Store.open(machine.home(), OPTIONS)


def put(store: Store, v: str) -> None:
    """Write files with 100 new rows."""
    table = Database(store).table("t")
    table.insert([{"id": table.count() + each, "v": v} for each in range(100)])
    store.maintain("t", "flush")


def values(store: Store) -> dict[str, int]:
    return dict(Counter(row["v"] for row in Database(store).table("t").scan().to_arrow().to_pylist()))


def begun(
    store: Store, machine: Machine, streamed: bool = False, name: str = "b"
) -> tuple[BucketCopy, list[FileToCopy]]:
    """Return a run that copies the store to another name, and what it lacks."""
    via = MemoryFileSystem() if streamed else SameService(machine.bucket, "", "")
    run = BucketCopy(machine.home(), machine.home(name), via, uuid4())
    missing = run.begin(store.create_pin(CreatePin(name=f"copy-{uuid4().hex[:8]}")).pin_id)
    assert missing is not None
    return run, missing


def copied(store: Store, machine: Machine, streamed: bool = False, name: str = "b") -> int:
    """Copy the store; return how many files were."""
    run, missing = begun(store, machine, streamed, name)
    for file in missing:
        run.bring(file)
    run.end()
    return len(missing)


def test_an_older_cache_does_not_bring_back_rows_of_a_history_that_is_gone(site: Site) -> None:
    with opened(site.a) as store:
        put(store, "is gone!")
        assert values(store) == {**FIRST, "is gone!": 100}
    site.put_back()
    with opened(site.b) as store:
        put(store, "it stays")
    with opened(site.a) as store:
        assert values(store) == {**FIRST, "it stays": 100}
        store.maintain("t", "compact")
    assert verify_bucket(site.home()).is_sound
    with opened(site.machine()) as store:
        assert values(store) == {**FIRST, "it stays": 100}


def test_a_history_goes_on_beside_files_of_one_that_is_gone(site: Site) -> None:
    with opened(site.a) as store:
        put(store, "is gone!")
    site.put_back(leaves_files=True)
    for machine in (site.b, site.a):
        with opened(machine) as store:
            put(store, "it stays")
    with opened(site.a) as store:
        assert values(store) == {**FIRST, "it stays": 200}
    assert verify_bucket(site.home()).is_sound


def test_a_load_of_a_history_that_is_gone_is_not_taken_for_another(site: Site) -> None:
    """Its rowset is named by the log alone, so nothing but the slots tells who made it."""

    def loaded(machine: Machine, v: str) -> Store:
        store = Store.open(
            machine.home(), OPTIONS.model_copy(update={"direct_load_bytes": 1, "direct_load_unsorted_bytes": 1})
        )
        Database(store).table("t").insert(pa.table({"id": range(1000, 1100), "v": [v] * 100}, SCHEMA))
        return store

    with loaded(site.a, "is gone!") as store:
        assert values(store) == {**FIRST, "is gone!": 100}
    assert len(site.files()) == 3, "the load wrote a file"
    site.put_back()
    loaded(site.b, "it stays").close()
    with opened(site.a) as store:
        assert values(store) == {**FIRST, "it stays": 100}


@pytest.mark.parametrize("streamed", [True, False])
def test_a_copy_of_a_history_that_is_gone_stays_as_it_is(site: Site, streamed: bool) -> None:
    with opened(site.a) as store:
        put(store, "is gone!")
        assert copied(store, site.a, streamed) == 4
    site.put_back()
    with opened(site.b) as store:
        put(store, "it stays")
        with pytest.raises(ConflictError, match="put back to an earlier state after they were copied"):
            copied(store, site.b, streamed)
        assert copied(store, site.b, streamed, "c") == 4
    for name, v in (("b", "is gone!"), ("c", "it stays")):
        assert verify_bucket(site.home(name)).is_sound
        with Store.open(site.home(name), OPTIONS) as copy:
            assert values(copy) == {**FIRST, v: 100}


def test_nobody_finishes_a_copy_of_a_history_that_is_gone(site: Site) -> None:
    with opened(site.a) as store:
        put(store, "is gone!")
        run, missing = begun(store, site.a)
        assert all(map(run.bring, missing))
    site.put_back()
    with opened(site.b) as store:
        put(store, "it stays")
        with pytest.raises(ConflictError, match="put back to an earlier state after they were copied"):
            copied(store, site.b)


def test_a_copy_goes_on_where_a_killed_run_ended_unless_nobody_noted_who_made_its_files(site: Site) -> None:
    with opened(site.a) as store:
        put(store, "more")
        run, missing = begun(store, site.a)
        run.bring(missing[0])
        assert len(begun(store, site.a)[1]) == len(missing) - 1
        assert copied(store, site.a) == len(missing) - 1
        (site.bucket / "stores/b/makers").unlink()
        run, missing = begun(store, site.a)
        assert len(missing) == 4, "an older version has copied it"
        run.bring(missing[0])
        assert len(begun(store, site.a)[1]) == 4, "that was not noted before all were"
        assert copied(store, site.a) == 4
        assert copied(store, site.a) == 0


def test_a_store_of_an_older_version_opens_and_notes_who_has_it_for_who_made_its_files(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(recovery, "with_makers", lambda manifest, known: manifest.model_copy(update={"makers": {}}))
        with opened(site.a) as store:
            put(store, "older")
            assert not store._environment.manifest.current.makers
    with opened(site.b) as store:
        assert values(store) == {**FIRST, "older": 100}
        put(store, "newer")
        noted = store._environment.manifest.current.makers
        assert [*noted] == [1, 2, 3]
    with opened(site.a) as store:
        assert values(store) == {**FIRST, "older": 100, "newer": 100}
        makers = store._environment.manifest.current.makers
        assert {reign: makers[reign] for reign in noted} == noted
