"""A damaged manifest: after a clean stop there is a copy of it, which is taken where it is of the same moment."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.engine.fs import LocalFileSystem, MemoryFileSystem
from nyala.engine.manifest.manifest import read_manifest
from nyala.engine.recovery.repair import repair_store
from nyala.engine.recovery.verify import verify_store
from nyala.schemas.errors import CorruptionError
from tests.campaigns.crash.images import cut_at_every_call
from tests.engine.subject import Subject


def open_store(path: Path) -> Database:
    return nyala.open(path, maintenance="off")


def filled(path: Path) -> None:
    with open_store(path) as db:
        db.create_table("t", data={"k": [1, 2]}, primary_key=["k"]).maintain("flush")


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 4
    file.write_bytes(content)


def zero(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[:24] + bytes(len(content) - 24))


HARM: dict[str, Callable[[Path], object]] = {
    "its magic": lambda file: flip(file, 1),
    "its length": lambda file: flip(file, 13),
    "its checksum": lambda file: flip(file, 22),
    "its first byte of text": lambda file: flip(file, 24),
    "its last": lambda file: flip(file, -1),
    "all of its text": zero,
}


@pytest.mark.parametrize("how", HARM)
def test_the_copy_stands_for_a_damaged_manifest(tmp_path: Path, how: str) -> None:
    filled(tmp_path)
    HARM[how](tmp_path / "manifest")
    damaged = (tmp_path / "manifest").read_bytes()
    (problem,) = verify_store(LocalFileSystem(tmp_path)).problems
    assert problem.startswith("CORRUPTION: manifest at byte 0")
    told = repair_store(LocalFileSystem(tmp_path))
    assert told.manifest and not told.is_applied and (tmp_path / "manifest").read_bytes() == damaged
    assert repair_store(LocalFileSystem(tmp_path), apply=True).is_applied
    assert (tmp_path / "damaged" / "manifest.1").read_bytes() == damaged
    assert verify_store(LocalFileSystem(tmp_path)).is_sound
    assert not repair_store(LocalFileSystem(tmp_path)).is_needed
    with open_store(tmp_path) as db:
        assert db.table("t").scan().count() == 2


def test_the_store_opens_by_the_copy_and_says_so(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(tmp_path / "manifest", 60)
    with open_store(tmp_path) as db:
        health = db._store.health()
        assert health.status == "degraded" and [each.path for each in health.damaged] == ["manifest"]
        db.table("t").upsert({"k": [3]})
        db.table("t").maintain("flush")
    with open_store(tmp_path) as db:
        assert db._store.health().status == "ok", "the next change has written it anew"
        assert db.table("t").scan().count() == 3


def test_a_copy_of_another_moment_is_not_taken(tmp_path: Path) -> None:
    filled(tmp_path)
    old = (tmp_path / "manifest.copy").read_bytes()
    with open_store(tmp_path) as db:
        db.drop_table("t")
        db.create_table("u", data={"k": [1, 2]}, primary_key=["k"])
    (tmp_path / "manifest.copy").write_bytes(old)
    for place in (1, 22, 24, -1):
        whole = (tmp_path / "manifest").read_bytes()
        flip(tmp_path / "manifest", place)
        with pytest.raises(CorruptionError, match="nyala repair"):
            open_store(tmp_path)
        with pytest.raises(CorruptionError, match="nyala job restore TABLE FOLDER"):
            repair_store(LocalFileSystem(tmp_path), apply=True)
        (tmp_path / "manifest").write_bytes(whole)
    (tmp_path / "manifest.copy").write_bytes(b"")
    with open_store(tmp_path) as db:
        assert db.tables() == ["u"]


def test_the_power_fails_at_every_call_of_a_repair_of_the_manifest() -> None:
    def damaged() -> MemoryFileSystem:
        fs = MemoryFileSystem()
        subject = Subject(fs)
        subject.upsert(1, 2)
        subject.flush()
        subject.close()
        file = fs._file("manifest")
        file.write(40, bytes([file.content[40] ^ 1]))
        file.sync()
        return fs

    for image in cut_at_every_call(damaged, partial(repair_store, apply=True)):
        assert read_manifest(image)
        repair_store(image, apply=True)
        assert verify_store(image).is_sound
        subject = Subject(image)
        assert sorted(row[0] for row in subject.scan()) == [1, 2]
        subject.store.close()
