"""A store with a damaged file, from the command line: what is said, what goes on working, and how it is repaired."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nyala
from nyala.clients.api.database import Database
from nyala.schemas.store.description import Health
from nyala.schemas.store.maintenance import FailingWork
from tests.clients.cli.command import Run


def test_from_damage_to_repair(run: Run, tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "store")]
    with nyala.open(tmp_path / "store") as db:
        for name in ("hurt", "well"):
            table = db.create_table(name, data={"id": [1, 2], "v": ["a", "b"]}, primary_key=["id"])
            table.maintain("flush")
    file = min((tmp_path / "store").rglob("*.undo"))
    name = str(file.relative_to(tmp_path / "store"))
    file.write_bytes(file.read_bytes()[:-1])
    health = run("health", *data)
    assert health.code == 1 and health.out.startswith("degraded, version ")
    assert f"damaged: {name} (tablet 2 of hurt, in quarantine): " in health.out and "nyala repair" in health.out
    assert run("scan", "well", "--count", *data).out == "2\n"
    refused = run("scan", "hurt", "--count", *data)
    assert refused.code == 11 and refused.err.startswith("CORRUPTION: ") and name in refused.err
    checked = run("verify", tmp_path / "store")
    assert checked.code == 1 and "nyala repair" in checked.out
    shown = run("repair", tmp_path / "store")
    assert shown.code == 1 and "drop its history" in shown.out and file.exists()
    assert checked.out.endswith(shown.out), "verify says it in the same words"
    told = run("verify", tmp_path / "store", "--json").json
    assert told["repair"] == run("repair", tmp_path / "store", "--json").json
    assert run("repair", tmp_path / "store", "--apply").code == 0
    assert (tmp_path / "store" / "damaged" / name).exists()
    assert run("verify", tmp_path / "store").code == 0
    assert run("health", *data).out.startswith("ok, version ")
    assert run("scan", "hurt", "--count", *data).out == "2\n"


def test_a_lost_tablet_from_a_backup(run: Run, tmp_path: Path) -> None:
    store, backups = tmp_path / "store", tmp_path / "back ups"
    data = ["--data", str(store)]
    with nyala.open(store, wal_segment_bytes=1 << 16, maintenance="off") as db:
        db.create_table("hurt", data={"id": [1, 2], "v": ["a", "b"]}, primary_key=["id"]).maintain("flush")
    assert run("job", "backup", "hurt", backups, *data).code == 0
    with nyala.open(store, wal_segment_bytes=1 << 16, maintenance="off") as db:
        db.table("hurt").insert({"id": [3], "v": ["c"]})
        other = db.create_table("other", data={"id": [1], "v": ["x"]}, primary_key=["id"])
        for number in range(4):
            other.upsert({"id": [number], "v": ["x" * 60_000]})
        for name in ("hurt", "other"):
            db.table(name).maintain("flush")
    directory = min((store / "tablets").iterdir(), key=lambda each: int(each.name))
    for file in directory.glob("*.base"):
        file.unlink()
    shown = run("repair", store)
    assert shown.code == 1 and f"nyala repair {store} --from-backup FOLDER" in shown.out
    source = ["--from-backup", str(backups)]
    checked, shown = run("verify", store, *source), run("repair", store, *source)
    assert checked.code == 1 and checked.out.endswith(shown.out)
    assert shown.code == 1 and "take it from the backup" in shown.out and "2 rows" in shown.out
    assert f"nyala repair {store} --from-backup '{backups}' --apply" in shown.out
    done = run("repair", store, *source, "--apply")
    assert done.code == 0 and "all later changes and deletes" in done.out
    assert run("verify", store).code == 0
    assert [row["id"] for row in map(json.loads, run("scan", "hurt", "--ordered", "--json", *data).lines)] == [1, 2]
    assert run("repair", store, *source).code == 0, "there is nothing left to do"


def test_a_store_that_is_open_is_not_repaired(run: Run, tmp_path: Path) -> None:
    with nyala.open(tmp_path / "store") as db:
        db.create_table("t", data={"id": [1]}, primary_key=["id"])
        for command in (["repair"], ["repair", "--apply"], ["verify"]):
            refused = run(command[0], tmp_path / "store", *command[1:])
            assert refused.code == 9 and "already has the store open" in refused.err


def test_maintenance_that_fails_is_listed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = FailingWork(
        name="flush tablet 2", op="flush", table="hurt", error="INTERNAL: a bug", failures=3, since=0.0, next_try=1.0
    )
    monkeypatch.setattr(Database, "health", lambda _: Health(status="degraded", version="1", failing=[work]))
    nyala.open(tmp_path / "store").close()
    health = run("health", "--data", str(tmp_path / "store"))
    since = "1970-01-01T00:00:00+00:00"
    assert health.code == 1
    assert health.lines[1] == f"failing: flush tablet 2 of hurt, since {since}, failures: 3: INTERNAL: a bug"
