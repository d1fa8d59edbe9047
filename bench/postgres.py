"""A PostgreSQL of Debian's package ``postgresql``, in a folder of its own, with its defaults but for its socket and the
settings that are given."""

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bench.compare.peers.nyala_subject import free_port

INSTALLED = Path("/usr/lib/postgresql")
UNPRIVILEGED = "postgres"
"""PostgreSQL does not start as root: then it runs as the user of its Debian package."""


def has_postgres() -> bool:
    """Whether this machine has the programs."""
    return any(INSTALLED.glob("*/bin/initdb"))


class Cluster:
    """A running server without tables; ``address`` is what psycopg takes."""

    def __init__(self, folder: Path, settings: Iterable[str] = ()) -> None:
        self.folder = folder
        self.user = UNPRIVILEGED if os.geteuid() == 0 else None
        if self.user:
            shutil.chown(folder, self.user)
        port = free_port()
        self.address = f"host={folder} port={port} user=postgres dbname=postgres"
        if not (folder / "data").exists():
            self._command("initdb", "--auth=trust", "--username=postgres", "--pgdata", str(folder / "data"))
        options = " ".join([f"-k {folder} -p {port} -c listen_addresses=", *(f"-c {each}" for each in settings)])
        self._command("pg_ctl", "-D", str(folder / "data"), "-o", options, "-l", str(folder / "log"), "-w", "start")

    @property
    def process_id(self) -> int:
        """The process of the server; those of its connections are below it."""
        return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def close(self) -> None:
        """Stop it; a new cluster in the same folder has its tables."""
        self._command("pg_ctl", "-D", str(self.folder / "data"), "-m", "fast", "stop")

    def _command(self, name: str, *arguments: str) -> None:
        newest = sorted(INSTALLED.glob(f"*/bin/{name}"))[-1]
        subprocess.run(
            [str(newest), *arguments],
            user=self.user,
            cwd=self.folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
