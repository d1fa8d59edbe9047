"""A PostgreSQL of Debian's package, on 127.0.0.1, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg2

from bench.compare.peers.nyala_subject import free_port

INSTALLED = Path("/usr/lib/postgresql")
OWNER = "postgres"
"""PostgreSQL does not start as root: then it runs as the user of its Debian package."""
PASSWORD = "very secret pw"


def has_postgres() -> bool:
    """Whether this machine has the programs."""
    return any(INSTALLED.glob("*/bin/initdb"))


class PostgresServer:
    """A cluster with ``wal_level = logical`` and a password."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nyala-postgres-"))
        self._user = OWNER if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(self.folder, self._user)
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if self._user:
            shutil.chown(password, self._user)
        self.data = self.folder / "data"
        self._run("initdb", "--auth=scram-sha-256", f"--pwfile={password}", "--username=postgres", "-D", str(self.data))
        self.port = free_port()
        given = {
            "wal_level": "logical",
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_wal_senders": "20",
            "max_replication_slots": "20",
            "fsync": "off",
        }
        lines = [f"{name} = '{value}'\n" for name, value in (given | (settings or {})).items()]
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(lines)
        self.start()

    @property
    def url(self) -> str:
        """The address of its database, with the password."""
        return f"postgresql://postgres:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._run("pg_ctl", "-D", str(self.data), "-l", str(self.folder / "log"), "-w", "-t", "60", "start")

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is a crash."""
        self._run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "-t", "60", "stop")

    def remove(self) -> None:
        """Stop it and remove its folder."""
        if (self.data / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def clear(self) -> None:
        """Drop all slots, publications and tables."""
        self.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active",
            "DROP SCHEMA public CASCADE",
            "CREATE SCHEMA public",
        )
        for (name,) in self.execute("SELECT pubname FROM pg_publication"):
            self.execute(f'DROP PUBLICATION "{name}"')
        for (name,) in self.execute("SELECT slot_name FROM pg_replication_slots"):
            self.execute(f"SELECT pg_drop_replication_slot('{name}')")

    @contextmanager
    def connection(self) -> Iterator[Any]:
        """Give a connection that commits each statement."""
        connection = psycopg2.connect(self.url)
        connection.autocommit = True
        try:
            yield connection
        finally:
            connection.close()

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in a transaction of its own; return the rows of the last one."""
        with self.connection() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def together(self, *statements: str) -> None:
        """Run statements in one transaction."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN;" + ";".join(statements) + ";COMMIT")

    def _run(self, name: str, *arguments: str) -> None:
        program = sorted(INSTALLED.glob(f"*/bin/{name}"))[-1]
        subprocess.run(
            [str(program), *arguments],
            user=self._user,
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
