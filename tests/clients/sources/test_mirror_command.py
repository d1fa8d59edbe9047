"""``nyala mirror`` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nyala

from .postgres_server import PASSWORD, PostgresServer


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "nyala", "mirror", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=os.environ | {"NYALA_URL": ""})


def test_a_mirror_runs_until_it_is_interrupted_and_continues(source: PostgresServer, url: str, tmp_path: Path) -> None:
    source.execute("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 1000)")
    source.execute('CREATE TABLE "B" (id int PRIMARY KEY)', 'INSERT INTO "B" VALUES (1)')
    tables = ["--table", "public.a", "--as", "first", "--table", 'public."B"', "--as", "second", "--url", url]
    log = tmp_path / "log"
    with log.open("w") as output:
        command = [sys.executable, "-m", "nyala", "mirror", source.url, *tables]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    with nyala.connect(url) as db:
        wait_for(db, "second", 1)
        source.together("INSERT INTO a VALUES (1001)", 'INSERT INTO "B" VALUES (2)')
        wait_for(db, "second", 2)
        assert db.table("first").count() == 1001
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        text = log.read_text()
        assert "applied 2 changes in 1 transaction" in text and PASSWORD not in text
        source.execute("DELETE FROM a WHERE id <= 10")
        again = run(source.url, *tables, "--until-caught-up", "--json")
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["state"] == "following"
        assert db.table("first").count() == 991


def wait_for(db: nyala.Database, table: str, rows: int) -> None:
    """Wait until a table has so many rows."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if table in db.tables() and db.table(table).count() == rows:
            return
        time.sleep(0.05)
    raise AssertionError(f"{table} did not get {rows} rows")


def test_mistakes_are_one_line(source: PostgresServer, tmp_path: Path) -> None:
    data = ["--data", str(tmp_path / "store")]
    wrong = [
        (["mysql://x/y", "--table", "a"], "postgresql://user@host/database"),
        ([source.url, "--table", "a", "--table", "b", "--as", "c"], "give --as once for each --table"),
        ([source.url, "--table", "public.nowhere"], "no table public.nowhere"),
        ([source.url.replace("secret", "wrong"), "--table", "a"], "password authentication failed"),
    ]
    for arguments, words in wrong:
        ended = run(*arguments, *data)
        assert ended.returncode in (3, 4, 8) and ended.stderr.count("\n") == 1, ended.stderr
        assert words in ended.stderr and "very" not in ended.stderr
