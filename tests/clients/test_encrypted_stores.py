"""Encrypted stores as users have them: commands, jobs, and processes that read and build files themselves."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import nyala
from nyala.__main__ import make_app
from nyala.clients.api.database import Database
from nyala.engine.kernels.compile import making
from nyala.flight_server.runtime.opening import open_warm
from nyala.jobs import backup, restore
from nyala.schemas.errors import CorruptionError, InvalidArgumentError
from nyala.schemas.store.store_key import StoreKey
from tests.doubles.encrypted import KEY, write_key

OTHER = StoreKey(b"another" + bytes(25))
ROWS = pa.table({"id": pa.array(range(3_000), pa.int64()), "city": [f"planted city {n % 9}" for n in range(3_000)]})


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_key(tmp_path / "key")


@pytest.fixture
def db(home: Path, key_file: Path) -> Iterator[Database]:
    with nyala.open(home, key_file=str(key_file), maintenance="off") as opened:
        yield opened


def filled(db: Database) -> nyala.Table:
    table = db.create_table("t", ROWS.schema, ["id"], partition_by=[nyala.hash("id", buckets=2)])
    table.insert(ROWS)
    table.maintain("flush")
    return table


def require_nothing_plain(home: Path) -> None:
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        content = path.read_bytes()
        assert not content or content[:8] in (b"NYALAENC", b"NYALAKEY"), path
        assert b"planted" not in content and b"city" not in content, path


def test_files_are_read_and_built_elsewhere_with_the_key_that_the_environment_names(
    db: Database, home: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(db)
    with pytest.raises(InvalidArgumentError, match="encrypted with the key"):
        table.direct_scan(directory=home)
    with pytest.raises(InvalidArgumentError, match="encrypted with the key"):
        table.bulk_import(ROWS, directory=home)
    monkeypatch.setenv("NYALA_KEY_FILE", str(key_file))
    with table.direct_scan(directory=home, split_bytes=10_000) as scan:
        with ProcessPoolExecutor(2, get_context("spawn")) as executor:
            assert scan.to_arrow(executor).sort_by("id").column("city").equals(ROWS.column("city"))
        require_nothing_plain(home)
    more = ROWS.slice(0, 500).set_column(0, "id", pa.array(range(10_000, 10_500), pa.int64()))
    assert table.bulk_import(more, directory=home).applied == 500
    table.upsert(ROWS.slice(0, 2_000))
    table.maintain("flush")
    table.bulk_compact(directory=home)
    assert table.count() == 3_500
    require_nothing_plain(home)


def test_a_backup_is_restored_into_a_store_with_another_key(db: Database, home: Path, tmp_path: Path) -> None:
    filled(db)
    backup(db, "t", str(tmp_path / "backups"), show="off")
    with nyala.open(tmp_path / "second", key=OTHER.secret, maintenance="off") as second:
        restore(second, str(tmp_path / "backups"), "t", show="off")
        second.table("t").maintain("flush")
        assert second.table("t").scan(ordered=True).to_arrow().equals(db.table("t").scan(ordered=True).to_arrow())
        require_nothing_plain(tmp_path / "second")
    require_nothing_plain(home)


def run(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), [str(each) for each in arguments], obj=nyala.open)
    if code:
        assert isinstance(done.exception, Exception) and done.exit_code == 1, done.output
        return str(done.exception)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_keys_are_made_changed_and_shown(home: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    made = [run("key", "create", path).strip() for path in (first, second)]
    assert made[0] != made[1] and first.stat().st_mode & 0o777 == 0o600
    assert "never overwritten" in run("key", "create", first, code=1)
    with nyala.open(home, key=first.read_text(), maintenance="off") as db:
        filled(db)
    assert json.loads(run("key", "status", home, "--json"))["key"] == made[0]
    run("key", "rotate", home, "--key-file", first, "--new-key-command", f"cat {second}")
    run("key", "rotate", home, "--key-file", first, "--new-key-file", second)
    assert made[1] in run("key", "status", home)
    assert made[1] in run("verify", home, "--key-file", first, code=1)
    assert "no problems found" in run("verify", home, "--key-command", f"cat {second}")
    assert "nothing to repair" in run("repair", home, "--key-file", second)
    base = next(home.rglob("*.base"))
    for path in (base, home / "manifest", home / "wal" / "0000000001.wal"):
        assert json.loads(run("dump", path, "--key-file", second))
    assert "key" in run("dump", base, code=1)
    assert "not encrypted" in run("key", "status", tmp_path, code=1)
    assert "new key is missing" in run("key", "rotate", home, "--key-file", first, code=1)


def test_a_key_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "taken").write_text("mine")
    run("key", "create", folder / "taken", code=1)

    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    synced: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", failing)
        assert "Input/output error" in run("key", "create", folder / "new", code=1)
        assert (folder / "taken").read_text() == "mine" and [each.name for each in folder.iterdir()] == ["taken"]
        patch.setattr("os.fsync", lambda descriptor: synced.append(os.path.realpath(f"/proc/self/fd/{descriptor}")))
        run("key", "create", folder / "new")
    assert synced[-1] == str(folder.resolve()) and sorted(os.listdir(folder)) == ["new", "taken"]


def test_a_rotation_takes_processes_along_that_have_no_store_yet(home: Path, tmp_path: Path, key_file: Path) -> None:
    nyala.open(home, key=KEY.secret, maintenance="off").close()
    begun = home / "processes" / "p1"
    begun.mkdir(parents=True)
    for name in ("keys", "keys.copy"):
        shutil.copy(home / name, begun / name)
    write_key(tmp_path / "new", OTHER.text)
    run("key", "rotate", home, "--key-file", key_file, "--new-key-file", tmp_path / "new")
    nyala.open(begun, key=OTHER.secret, maintenance="off").close()


def test_a_repair_without_the_key_removes_nothing_and_one_with_it_works(home: Path, key_file: Path) -> None:
    with nyala.open(home, key_file=str(key_file), maintenance="off") as db:
        filled(db)
    base = next(home.rglob("*.base"))
    content = bytearray(base.read_bytes())
    content[200] ^= 1
    base.write_bytes(content)
    before = {path: path.stat().st_mtime_ns for path in home.rglob("*")}
    assert KEY.id in run("repair", home, "--apply", code=1)
    assert {path: path.stat().st_mtime_ns for path in home.rglob("*")} == before
    output = run("repair", home, "--apply", "--key-file", key_file)
    assert base.name in output or "repaired" in output
    with nyala.open(home, key_file=str(key_file), maintenance="off") as db:
        assert 0 < db.table("t").count() <= 3_000
    damaged = [path for path in (home / "damaged").rglob("*") if path.is_file()]
    assert damaged and all(path.read_bytes().startswith(b"NYALAENC") for path in damaged)


def test_a_damaged_page_is_a_damaged_file_and_the_rest_is_read(db: Database, home: Path, key_file: Path) -> None:
    filled(db)
    db.close()
    base = next(home.rglob("*.base"))
    content = bytearray(base.read_bytes())
    content[200] ^= 1
    base.write_bytes(content)
    with nyala.open(home, key_file=str(key_file), maintenance="off") as again:
        with pytest.raises(CorruptionError, match="encrypted block"):
            again.table("t").scan().to_arrow()
        assert [each.path for each in again.health().damaged] == [base.relative_to(home).as_posix()]


def test_a_server_takes_its_key_from_the_environment_and_says_so_without(home: Path, key_file: Path) -> None:
    with nyala.open(home, key_file=str(key_file)) as db:
        filled(db)
    command = [sys.executable, "-m", "nyala", "serve", "--data", str(home), "--listen", "grpc://127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert (
        done.stderr.strip()
        .splitlines()[-1]
        .startswith(f"INVALID_ARGUMENT: the store is encrypted with the key {KEY.id}")
    )


def test_a_server_asks_for_the_key_once_and_before_it_prepares(home: Path, key_file: Path, tmp_path: Path) -> None:
    nyala.open(home, key=KEY.secret, maintenance="off").close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(making, "ensure_library", lambda: pytest.fail("the kernels come later"))
        with pytest.raises(InvalidArgumentError, match="encrypted with the key"):
            open_warm(home, {})
    command = f"echo >> {tmp_path}/asked; cat {key_file}"
    open_warm(home, {"key_command": command, "maintenance": "off"}).close()
    assert (tmp_path / "asked").read_text() == "\n"
