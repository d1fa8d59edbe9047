"""Who calls, whom to trust, and the key of a store: these options stand before and after every verb."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nyala
from nyala.__main__ import _command
from tests.clients.cli.command import Run


@pytest.fixture
def key(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new key of a store. The options become variables, which are as before at the end."""
    for name in ("NYALA_KEY_FILE", "NYALA_KEY_COMMAND", "NYALA_TOKEN", "NYALA_TOKEN_FILE"):
        monkeypatch.setenv(name, "none")
        monkeypatch.delenv(name)
    assert run("key", "create", tmp_path / "key").code == 0
    (tmp_path / "rows.csv").write_text("id,x\n1,2\n")
    return tmp_path / "key"


def forget() -> None:
    """Unset what the options of the last command set: the next one is another process."""
    for name in ("NYALA_KEY_FILE", "NYALA_KEY_COMMAND", "NYALA_TOKEN_FILE"):
        os.environ.pop(name, None)


@pytest.mark.parametrize("place", ["before", "after", "by a command"])
def test_the_key_of_a_store_stands_before_and_after_a_verb(run: Run, tmp_path: Path, key: Path, place: str) -> None:
    option = ["--key-command", f"cat {key}"] if place == "by a command" else ["--key-file", key]
    home = ["--data", tmp_path / "store"]

    def done(*words: object) -> str:
        forget()
        made = run(*option, *words, *home) if place == "before" else run(*words, *home, *option)
        assert made.code == 0, made.err
        return made.out

    assert "1 applied" in done("load", "rows", tmp_path / "rows.csv", "--create", "--key", "id")
    assert (tmp_path / "store" / "keys").exists()
    assert done("scan", "rows", "--csv").splitlines()[1:] == ["1,2"]
    assert "rows" in done("table", "list")
    forget()
    assert "is encrypted with the key" in run("scan", "rows", *home).err


def test_an_option_without_a_value_makes_no_store(run: Run, tmp_path: Path, key: Path) -> None:
    """As of a variable of the shell that is not set."""
    words = ["load", "rows", tmp_path / "rows.csv", "--create", "--key", "id", "--data", tmp_path / "store"]
    for option in (["--key-file", ""], ["--key-file", key, "--key-command", "cat"]):
        for line in ([*words, *option], [*option, *words]):
            forget()
            refused = run(*line)
            assert refused.code == 3 and ("is empty" in refused.err or "not both" in refused.err)
            assert not (tmp_path / "store").exists()


def test_every_verb_takes_the_token_before_and_after(key: Path) -> None:
    """And its help tells of it."""
    verbs = list(_verbs(_command()))
    assert len(verbs) > 60
    for verb in verbs:
        flags = [flag for each in verb.params for flag in each.opts]
        assert {"--token-file", "--key-file", "--key-command", "--tls-roots"} <= set(flags), verb.name
        assert len(flags) == len(set(flags)) and verb.epilog, verb.name


def _verbs(group: Any) -> Iterator[Any]:
    for command in group.commands.values():
        yield from _verbs(command) if hasattr(command, "commands") else [command]


def test_a_token_after_the_verb_is_sent(run: Run, tmp_path: Path, key: Path) -> None:
    """It is in the place of that of the environment."""
    with nyala.open(tmp_path / "store", maintenance="off"):
        pass
    os.environ["NYALA_TOKEN"] = "other"
    assert run("list", "--data", tmp_path / "store", "--token-file", tmp_path / "token").code == 0
    assert os.environ["NYALA_TOKEN_FILE"] == str(tmp_path / "token") and "NYALA_TOKEN" not in os.environ


def test_a_token_that_others_can_read_is_told(run: Run, tmp_path: Path, key: Path) -> None:
    """Not refused, since what a container mounts may have any mode."""
    token = tmp_path / "alice.token"
    token.write_text("secret\n")
    line = ["list", "--url", "grpc://127.0.0.1:1", "--token-file", token]
    for mode, is_told in ((0o600, False), (0o640, True)):
        token.chmod(mode)
        refused = run(*line)
        assert (
            f"warning: other users can read the token file {token}; run: chmod 600 {token}" in refused.err
        ) is is_told
        assert refused.code == 9 and len(refused.err.splitlines()) == 1 + is_told
        forget()
