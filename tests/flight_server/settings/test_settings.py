"""Options of ``nyala serve``: from the command line, the environment and a file, each declared once."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nyala.engine.options import StoreOptions
from nyala.flight_server.processes.shares import memory_shares
from nyala.flight_server.settings.config import ServerConfig
from nyala.flight_server.settings.settings import Settings, known, read_settings
from nyala.schemas.errors import InvalidArgumentError, NotFoundError
from nyala.schemas.limits.limits import Limits
from nyala.schemas.limits.usable import usable_memory

MIB = 1 << 20


def read(
    flags: dict[str, Any] | None = None,
    *assignments: str,
    environment: dict[str, str] | None = None,
    file: Path | None = None,
) -> Settings:
    return read_settings(flags or {}, assignments, environment or {}, file)


def test_every_option_has_a_name_and_says_what_it_means() -> None:
    names = set(known())
    assert set(ServerConfig.model_fields) - {"private_paths"} <= names
    assert set(StoreOptions.model_fields) - {"limits", "placement", "server", "key"} <= names
    assert {f"limits_{name}" for name in Limits.model_fields} <= names
    silent = [name for name, setting in known().items() if not setting.about]
    assert silent == []


def test_a_start_reads_no_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("the source was read")

    monkeypatch.setattr(inspect, "getsource", refuse)
    known.cache_clear()
    assert read({"scans_max": 3}, "puts_max=4", environment={"NYALA_PLANS_MAX": "5"}).server.plans_max == 5


def test_what_stands_nearer_wins(tmp_path: Path) -> None:
    file = tmp_path / "nyala.toml"
    file.write_text(
        'scans_max = 1\nputs_max = 1\nplans_max = 1\nlisten = "grpc://127.0.0.1:1"\n[limits]\ncell_bytes = 9\n'
    )
    environment = {
        "NYALA_PUTS_MAX": "2",
        "NYALA_PLANS_MAX": "2",
        "NYALA_LIMITS_COLUMNS": "8",
        "NYALA_MAINTENANCE": "off",
    }
    found = read({"plans_max": 3, "data": tmp_path}, "durability=os", environment=environment, file=file)
    assert (found.server.scans_max, found.server.puts_max, found.server.plans_max) == (1, 2, 3)
    assert found.server.calls_max == ServerConfig().calls_max
    assert found.serve.listen == "grpc://127.0.0.1:1" and found.serve.data == tmp_path
    options = StoreOptions(**found.store)
    assert (options.limits.cell_bytes, options.limits.columns, options.limits.key_bytes) == (9, 8, Limits().key_bytes)
    assert (options.maintenance, options.durability) == ("off", "os")
    by_variable = read(environment={"NYALA_CONFIG": str(file), "NYALA_URL": "x", "NYALA_PORT": "tcp://10.0.0.1:8815"})
    assert by_variable.server.scans_max == 1


def test_of_a_key_file_and_a_key_command_the_nearer_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "nyala.toml"
    file.write_text('key_file = "a"\n')
    named = {"NYALA_KEY_COMMAND": "b"}
    cases = [
        (read(file=file), ("a", None)),
        (read(environment=named, file=file), (None, "b")),
        (read({"key_file": "c"}, environment=named, file=file), ("c", None)),
        (read({"key_command": "d"}, environment={"NYALA_KEY_FILE": "e"}), (None, "d")),
        (read({"key_command": "d"}, "key_file=f"), ("f", None)),
    ]
    for settings, expected in cases:
        assert (settings.store.get("key_file"), settings.store.get("key_command")) == expected


def test_a_budget_is_shared_out_wherever_it_comes_from() -> None:
    for found in (
        read({"memory_mb": 64}),
        read(None, f"budget_bytes={64 * MIB}"),
        read(environment={"NYALA_MEMORY_MB": "64"}),
    ):
        assert StoreOptions(**found.store).memory_bytes == 32 * MIB


def test_a_server_has_half_of_the_memory_by_default() -> None:
    for found in (read(), read(None, "reads_bytes=1048576")):
        assert StoreOptions(**found.store).budget_bytes == usable_memory() // 2
    with pytest.raises(InvalidArgumentError, match="budget_bytes"):
        read(None, "budget_bytes=0")
    parts = memory_shares(StoreOptions(budget_bytes=300 * MIB), 3)
    assert parts["budget_bytes"] == 100 * MIB and parts["memory_bytes"] == 50 * MIB
    assert "page_cache_bytes" not in parts, "each has what its own parts leave"
    assert memory_shares(StoreOptions(page_cache_bytes=90), 3)["page_cache_bytes"] == 30


def test_the_printed_file_is_read_as_it_was_printed(tmp_path: Path) -> None:
    first = read({"data": tmp_path / "d"}, "scans_max=7", "limits_columns=12", "memory_throttle_seconds=0.5")
    file = tmp_path / "printed.toml"
    file.write_text(first.text())
    assert tomllib.loads(file.read_text())["limits"]["columns"] == 12
    again = read(file=file)
    assert (again.serve, again.server) == (first.serve, first.server)
    assert StoreOptions(**again.store) == StoreOptions(**first.store)
    assert "scans_max = 7  # --set" in first.text()


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown name": ({"assignments": ["scan_max=3"]}, "unknown option 'scan_max'; did you mean 'scans_max'"),
    "no value": ({"assignments": ["scans_max"]}, "name=value"),
    "a wrong value": ({"assignments": ["scans_max=many"]}, r"scans_max = 'many' \(from --set\): "),
    "a count of nothing": ({"assignments": ["scans_max=0"]}, "greater than 0"),
    "a variable that is nearly one": ({"environment": {"NYALA_SCAN_MAX": "3"}}, "did you mean NYALA_SCANS_MAX"),
    "a wrong variable": ({"environment": {"NYALA_MAINTENANCE": "maybe"}}, "from NYALA_MAINTENANCE"),
    "an unknown name in a file": ({"file": "memory_byte = 3"}, "did you mean 'memory_bytes'"),
    "an unknown limit": ({"file": "[limits]\ncel_bytes = 3"}, "did you mean 'cell_bytes'"),
    "limits that are none": ({"file": "limits = 3"}, "limits must be a TOML table"),
    "no TOML": ({"file": "scans_max ="}, "is not TOML"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_refused(tmp_path: Path, case: str) -> None:
    given, why = WRONG[case]
    file = None
    if "file" in given:
        file = tmp_path / "nyala.toml"
        file.write_text(given["file"])
    with pytest.raises(InvalidArgumentError, match=why):
        read(None, *given.get("assignments", ()), environment=given.get("environment"), file=file)
    with pytest.raises(NotFoundError, match="no file"):
        read(file=tmp_path / "none.toml")


def show(*arguments: object, **environment: str) -> str:
    command = [sys.executable, "-m", "nyala", "config", "show", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_shows_where_each_value_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "nyala.toml"
    file.write_text(f'data = "{tmp_path}/store"\nscans_max = 3\n[limits]\ncolumns = 7\n')
    flags = "--config", file, "--puts-max", 4, "--set", "plans_max=5"
    shown = json.loads(show(*flags, "--json", NYALA_DURABILITY="os"))
    assert shown.keys() == known().keys()
    given = {name: (each["value"], each["from"]) for name, each in shown.items() if each["from"] != "default"}
    assert given == {
        "data": (f"{tmp_path}/store", str(file)),
        "scans_max": (3, str(file)),
        "limits_columns": (7, str(file)),
        "durability": ("os", "NYALA_DURABILITY"),
        "puts_max": (4, "--puts-max"),
        "plans_max": (5, "--set"),
    }
    table = [line.split("\t") for line in show(*flags, "--given", NYALA_DURABILITY="os").splitlines()]
    assert table[0] == ["setting", "value", "from"]
    assert {name: (json.loads(value), where) for name, value, where in table[1:]} == given
    said = tomllib.loads(show(*flags, "--toml"))
    assert (said["scans_max"], said["puts_max"], said["data"]) == (3, 4, f"{tmp_path}/store")
    assert tomllib.loads(show(*flags, "--toml", "--given")).keys() == {
        "data",
        "scans_max",
        "puts_max",
        "plans_max",
        "limits",
    }
    assert not (tmp_path / "store").exists()


def test_secrets_are_not_shown() -> None:
    flags = {"import_storage": "s3://me:hidden@bucket/a?secret_key=hidden&region=x"}
    found = read(flags, "key_command=vault read -token hidden")
    shown = {each.name: each.value for each in found.shown()}
    assert (shown["import_storage"], shown["key_command"]) == ("s3://***@bucket/a?***", "***")
    assert "hidden" not in found.text() and "import_storage" not in tomllib.loads(found.text())
    with pytest.raises(InvalidArgumentError) as caught:
        read(None, "listen=x", environment={"NYALA_DATA": "y", "NYALA_LOG_LEVEL": "grpc://me:hidden@x"})
    assert "hidden" not in str(caught.value)


def test_serve_without_a_directory() -> None:
    bare = subprocess.run([sys.executable, "-m", "nyala", "serve"], capture_output=True, text=True)
    assert bare.returncode == 3 and "--data DIR" in bare.stderr
