"""docs/cli.md is true: its examples run, its reference is that of the commands, its exit codes those of the code."""

from __future__ import annotations

import doctest
import io
import re
import shlex
import sys
from pathlib import Path

import pytest
from cli_page import MARK, PAGE, commands, reference
from command import Run

from nyala.clients.cli.run import EXIT_CODES
from nyala.schemas import errors

TEXT = PAGE.read_text()
FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = re.compile(r"^<!-- commands(?: exit=(\d+))? -->\n+```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_RUN = {
    "demo": "it takes a minute",
    "tablet move": "it needs several servers: tests/cluster",
    "serve": "it runs until it is stopped: tests/flight_server/test_lifecycle.py",
    "spark build-shim": "it needs a JDK: tests/spark",
    "key rotate": "it needs an encrypted store: tests/clients/test_encrypted_stores.py",
    "key status": "it needs an encrypted store: tests/clients/test_encrypted_stores.py",
    "sweep": "it needs a bucket: tests/clients/test_bucket_stores.py",
}
"""Commands without an example that runs, and why."""


def test_exit_codes() -> None:
    told = {
        word: int(code)
        for code, words in re.findall(r"^\| (\d+) \| (`[A-Z].*) \|$", TEXT, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", words)
    }
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert told == EXIT_CODES
    assert EXIT_CODES.keys() == {kind.code for kind in kinds if issubclass(kind, errors.StoreError)}


def test_the_reference_is_that_of_the_commands() -> None:
    assert TEXT.partition(MARK)[2] == reference(), "python tests/cli/cli_page.py writes it"


def example_commands() -> list[str]:
    return [line[2:] for _, block in EXAMPLES.findall(TEXT) for line in block.splitlines() if line.startswith("$ ")]


def test_every_command_has_an_example() -> None:
    shown = {name for name in commands() if any(f"{line} ".startswith(f"nyala {name} ") for line in example_commands())}
    assert shown | NOT_RUN.keys() == commands().keys()
    assert all(f"nyala {name}" in TEXT for name in NOT_RUN)


def test_the_examples_run_one_after_the_other(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NYALA_URL", url)
    for name, content in FILE.findall(TEXT):
        (tmp_path / name).write_text(content)
    checker = doctest.OutputChecker()
    for exit_code, block in EXAMPLES.findall(TEXT):
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, wanted = example.partition("\n")
            words = shlex.split(line, posix=True)
            out = _redirected(words, monkeypatch)
            done = run(*words[1:])
            assert done.code == int(exit_code or 0), (line, done.err)
            if out:
                Path(out).write_text(done.out)
            else:
                assert checker.check_output(wanted, done.out, doctest.ELLIPSIS), (line, done.out)


def _redirected(words: list[str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Take ``> FILE`` and ``< FILE`` out of a command line; return the first file, give the other as standard input."""
    out = None
    for mark in ("<", ">"):
        if mark in words:
            at = words.index(mark)
            name = words[at + 1]
            del words[at : at + 2]
            if mark == "<":
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(name).read_bytes())))
            else:
                out = name
    return out
