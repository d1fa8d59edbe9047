"""The pages of the command line are true: the examples run, reference and exit codes are those of the code."""

from __future__ import annotations

import doctest
import importlib
import inspect
import io
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, get_origin

import pytest

from nyala.clients.cli.run import EXIT_CODES
from nyala.schemas import errors
from tests.clients.cli.cli_page import MARK, PAGE, commands, reference
from tests.clients.cli.command import Run

ROOT = PAGE.parents[1]
TEXT = (ROOT / "docs" / "cli.md").read_text()
REFERENCE = PAGE.read_text()
LINES = re.compile(r"\bnyala (([a-z-]+)(?: ([a-z-]+))?)((?:\\\\\n|[^`\n|;&#])*)")
"""A command in a document: its name, and its arguments up to the end of the line or of the quotation."""
FILE = re.compile(r"^```\w+ (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = re.compile(r"^<!-- commands(?: exit=(\d+))? -->\n+```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_RUN = {
    "demo": "it takes a minute",
    "tablet move": "it needs several servers: tests/clients/cluster",
    "cluster balance": "it needs several servers: tests/clients/cli/test_cluster.py",
    "consume": "it needs a Kafka: tests/clients/sources/kafka/test_groups.py",
    "mirror": "it needs a PostgreSQL: tests/clients/sources/test_mirror_command.py",
    "follow": "it waits for files: tests/clients/cli/test_follow_command.py",
    "serve": "it runs until it is stopped: tests/flight_server/serve/test_lifecycle.py",
    "spark build-shim": "it needs a JDK: tests/clients/spark",
    "key rotate": "it needs an encrypted store: tests/clients/test_encrypted_stores.py",
    "key status": "it needs an encrypted store: tests/clients/test_encrypted_stores.py",
    "job copy-store": "it needs a bucket: tests/clients/cli/test_bucket.py",
    "server release": "it needs a standby: tests/campaigns/failover/test_standby_processes.py",
    "server status": "it needs a store in a bucket: tests/campaigns/failover/test_standby_processes.py",
    "server take": "it needs a standby: tests/campaigns/failover/test_standby_processes.py",
    "sweep": "it needs a bucket: tests/clients/test_bucket_stores.py",
}
"""Commands without an example that runs, and why."""


def test_exit_codes() -> None:
    told = {
        word: int(code)
        for code, words in re.findall(r"^\| (\d+) \| (`[A-Z].*) \|$", REFERENCE, re.MULTILINE)
        for word in re.findall(r"`(\w+)`", words)
    }
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert told == EXIT_CODES
    assert EXIT_CODES.keys() == {kind.code for kind in kinds if issubclass(kind, errors.StoreError)}


def test_the_reference_is_that_of_the_commands() -> None:
    assert REFERENCE.partition(MARK)[2] == reference(), "python tests/clients/cli/cli_page.py writes it"


def test_commands_have_the_flags_that_documents_show() -> None:
    flags = {
        name: {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
        for name, command in commands().items()
    }
    shown = [
        (page.name, name if name in flags else group if group in flags else verb, flag)
        for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"))
        for name, group, verb, rest in LINES.findall(page.read_text())
        for flag in re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)
    ]
    assert ("processes.md", "serve", "--processes") in shown
    assert [each for each in shown if each[1] in flags and each[2] not in flags[each[1]]] == []


def test_every_option_that_is_declared_is_one_of_a_command() -> None:
    server = ROOT / "flight_server"
    files = [*server.glob("commands/*command*.py"), server / "serve" / "options.py"]
    modules = [vars(importlib.import_module(f"nyala.flight_server.{file.parent.name}.{file.stem}")) for file in files]
    functions = [each for names in modules for each in names.values() if inspect.isfunction(each)]
    annotations = [
        str(each.annotation) for function in functions for each in inspect.signature(function).parameters.values()
    ]
    taken = {annotation.rpartition(".")[2] for annotation in annotations}
    declared = {name for names in modules for name, each in names.items() if get_origin(each) is Annotated}
    assert "Processes" in declared
    assert declared - taken == set()


def example_commands() -> list[str]:
    return [line[2:] for _, block in EXAMPLES.findall(TEXT) for line in block.splitlines() if line.startswith("$ ")]


def test_every_command_has_an_example() -> None:
    shown = {name for name in commands() if any(f"{line} ".startswith(f"nyala {name} ") for line in example_commands())}
    assert shown | NOT_RUN.keys() == commands().keys()


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
