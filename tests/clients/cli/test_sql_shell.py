"""The shell of nyala sql: what a person types, at a terminal and by pipes of keys, completion and the history."""

from __future__ import annotations

import os
import pty
import re
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import nyala
from nyala.clients.cli.sql.completion import StoreNames, completed
from nyala.clients.cli.sql.prompt import history_file, interact
from nyala.clients.cli.sql.shell import Shell
from nyala.clients.cli.sql.sink import RowSink

SLOW = "SELECT count(*) FROM many a, many b, many c WHERE (a.id * b.id + c.id) % 7 = 3;"
"""It makes no batch for hours."""
Typed = Callable[[str], str]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three tables, which tests only read."""
    folder = tmp_path_factory.mktemp("shop")
    with nyala.open(folder) as db:
        homes = {"id": [1, 2, 3], "city": ["Oslo", None, "a\tb\x1b[31m"], "price": [1.5, 2.5, None]}
        db.create_table("homes", primary_key="id", data=homes)
        db.create_table("many", primary_key="id", data={"id": list(range(200_000))})
        db.create_table("Odd name", primary_key="id", data={"id": [1], "Big": [2]})
    return folder


@pytest.fixture
def db(store: Path) -> Iterator[nyala.Database]:
    with nyala.open(store) as database:
        yield database


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for what programs keep of a user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.fixture
def typed(db: nyala.Database, state: Path, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Type keys into a shell; return what it printed."""

    def type_keys(keys: str) -> str:
        with (
            create_pipe_input() as source,
            create_app_session(input=source, output=DummyOutput()),
            Shell(db, RowSink()) as shell,
        ):
            source.send_text(keys)
            interact(shell, "shop")
        out, err = capsys.readouterr()
        return out + err

    return type_keys


def test_statements_of_several_lines(typed: Typed) -> None:
    assert typed("SELECT id\rFROM homes\rWHERE city = 'Oslo;\r' OR id = 1;\r\x04") == "id\n1\n"
    assert typed("SELECT 1 AS a; SELECT 2 AS b;\r\\q\r") == "a\n1\nb\n2\n"
    assert typed("\r  \r\\dt\rexit\r") == "table\nOdd name\nhomes\nmany\n"


def test_an_error_does_not_end_the_shell(typed: Typed) -> None:
    shown = typed("SELECT x FROM homes;\r\\forma\r\rSELECT 1 AS a;\r\x04").splitlines()
    assert sorted(shown) == sorted(
        [
            "INVALID_ARGUMENT: there is no column 'x'",
            "INVALID_ARGUMENT: there is no command \\forma, perhaps \\format; \\? shows all commands",
            "a",
            "1",
        ]
    )


def test_ctrl_c_drops_what_is_typed(typed: Typed) -> None:
    assert typed("SELECT 'lost\r\x03SELECT 2 AS b;\r\x04") == "b\n2\n"


def test_the_history_is_for_its_user_alone(typed: Typed, state: Path) -> None:
    assert typed("SELECT 1 AS a;\r\x04") and history_file() == state / "nyala" / "sql_history"
    assert stat.S_IMODE(history_file().stat().st_mode) == 0o600
    assert typed("\x1b[A\r\x04") == "a\n1\n"  # the statement before, by the arrow
    history_file().chmod(0o644)
    assert typed("\x04") == "" and stat.S_IMODE(history_file().stat().st_mode) == 0o600


def test_without_a_place_for_the_history_the_shell_works(typed: Typed, state: Path) -> None:
    state.write_text("a file")
    assert typed("SELECT 1 AS a;\r\x04") == "a\n1\n"


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("SELECT ci", " FROM homes", ["city"]),
        ("SEL", "", ["SELECT"]),
        ("sel", "", ["select"]),
        ("SELECT * FROM ", "", ['"Odd name"', "homes", "many"]),
        ("SELECT * FROM ho", "", ["homes"]),
        ("DELETE FROM o", "", ['"Odd name"']),
        ('SELECT * FROM "O', "", ['"Odd name"']),
        ("SELECT homes.", " FROM homes", ["id", "city", "price"]),
        ("SELECT h.p", " FROM homes AS h", ["price"]),
        ("SELECT h.", " FROM homes h", ["id", "city", "price"]),
        ("SELECT o.b", ' FROM "Odd name" o', ['"Big"']),
        ("SELECT x.", " FROM homes", []),
        ("\\d", "", ["\\d", "\\dt"]),
        ("\\d ho", "", ["homes"]),
        ("SELECT 1;\n\\timing o", "", ["on", "off"]),
        ("\\format p", "", ["parquet"]),
        ("\\q x", "", []),
    ],
)
def test_what_completes(db: nyala.Database, text: str, after: str, expected: list[str]) -> None:
    assert completed(text, after, StoreNames(db))[1] == expected


class Terminal:
    """A process of ``nyala sql`` at a terminal of its own."""

    def __init__(self, *arguments: str, state: Path) -> None:
        self._bytes, self._read, self._unread = b"", 0, ""
        self._process, self._end = pty.fork()
        if not self._process:
            variables = {"TERM": "xterm", "COLUMNS": "60", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(state)}
            line = [sys.executable, "-m", "nyala", "sql", *arguments]
            os.execve(sys.executable, line, os.environ | variables)

    def until(self, text: str, seconds: float = 60) -> str:
        """Return what is shown, from the end of the last answer up to a text."""
        end = time.monotonic() + seconds
        while text not in self._unread:
            assert time.monotonic() < end, self._unread
            if select.select([self._end], [], [], 0.1)[0]:
                self._bytes += os.read(self._end, 1 << 16)
                self._unread = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._bytes.decode(errors="replace"))[self._read :]
        screen = self._unread[: self._unread.index(text) + len(text)]
        self._read += len(screen)
        self._unread = self._unread[len(screen) :]
        return screen

    def type(self, keys: str) -> None:
        """Type keys."""
        os.write(self._end, keys.encode())

    def code(self) -> int:
        """Return the exit code."""
        while True:
            try:
                if not os.read(self._end, 1 << 16):
                    break
            except OSError:  # Linux says so when the process is gone
                break
        os.close(self._end)
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])


def test_at_a_terminal(store: Path, state: Path) -> None:
    terminal = Terminal(str(store), state=state)
    terminal.until(f"{store.name}>")
    terminal.type("SELECT * FROM homes ORDER BY id;\r")
    screen = terminal.until(" s)")
    assert re.search(r"\u2502 +2 +\u2502 NULL +\u2502 +2\.5 \u2502", screen), screen
    assert "a\\x09b\\x1b[31m" in screen and re.search(r"\(3 rows, \d+\.\d{3} s\)", screen)
    terminal.until(f"{store.name}>")
    terminal.type(f"SELECT {', '.join(f'id + {n} AS number_{n}' for n in range(9))} FROM many;\r")
    assert "(the first 100 rows, 5 of 9 columns; --output FILE" in terminal.until("gets all")
    terminal.until(f"{store.name}>")
    terminal.type("SELECT 'com' || 'plete' AS a FROM hom\t")
    terminal.until("homes")
    terminal.type(" LIMIT 1;\r")
    terminal.until("complete")
    terminal.until(f"{store.name}>")
    terminal.type(SLOW + "\r")
    terminal.until("running")
    terminal.type("\x03")
    terminal.until("canceled")
    terminal.until(f"{store.name}>")
    terminal.type("SELECT 'well' || 'come' AS a;\r")
    terminal.until("wellcome")
    terminal.until(f"{store.name}>")
    terminal.type("\x04")
    assert terminal.code() == 0


def test_a_terminal_lacks_its_library(
    store: Path, state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['prompt_toolkit'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    terminal = Terminal(str(store), state=state)
    terminal.until("pip install 'nyala[sql]'")
    assert terminal.code() == 9
