"""A store with a damaged file, from the command line: what is said, what goes on working, and how it is repaired."""

from __future__ import annotations

from pathlib import Path

from command import Run

import nyala


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
    assert run("repair", tmp_path / "store", "--apply").code == 0
    assert (tmp_path / "store" / "damaged" / name).exists()
    assert run("verify", tmp_path / "store").code == 0
    assert run("health", *data).out.startswith("ok, version ")
    assert run("scan", "hurt", "--count", *data).out == "2\n"
