"""DuckDB behind its own protocol, Quack:  python -m bench.ycsb.quack FILE RECORDS

DuckDB 2 downloads the extension from a site of its own. The package index has it for 1.5.5, which is installed into a
folder of its own, and comes first in the path of the processes that use it.
"""

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from bench.compare.peers.nyala_subject import free_port

VERSION = "1.5.5"
EXTENSIONS = ("httpfs", "quack")
PACKAGES = ["duckdb", *(f"duckdb-extension-{name}" for name in EXTENSIONS)]
FOLDER = Path(__file__).parent.parent.parent / "build" / f"quack-{VERSION}"
TOKEN = "benchmark"


@cache
def has_quack() -> bool:
    """Whether that version is installed, or can be."""
    if (FOLDER / "duckdb").exists():
        return True
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(FOLDER)]
    packages = [f"{name}=={VERSION}" for name in PACKAGES]
    return not subprocess.run([*command, *packages], capture_output=True, check=False).returncode


def connect(file: str = ":memory:") -> Any:
    """Open a database with the extensions; the process must not have imported another DuckDB."""
    sys.path.insert(0, str(FOLDER))
    import duckdb

    if duckdb.__version__ != VERSION:
        raise RuntimeError(f"this process has DuckDB {duckdb.__version__}, which lacks Quack: call this first")
    database = duckdb.connect(file)
    for name in EXTENSIONS:
        module = FOLDER / f"duckdb_extension_{name}" / "extensions" / f"v{VERSION}"
        database.execute(f"LOAD '{module / name}.duckdb_extension'")
    return database


class Remote:
    """A database in this process that sends each statement to the server at ``address``."""

    def __init__(self, address: str) -> None:
        self.database = connect()
        self.query = f"FROM quack_query('{address}', ?, token = '{TOKEN}')"

    def run(self, statement: str) -> list[tuple]:
        """Return the rows of a statement; one that lost to a concurrent change of its row is sent again."""
        while True:
            try:
                return self.database.execute(self.query, [statement]).fetchall()
            except Exception as error:
                if "conflict" not in str(error).lower():
                    raise


def main() -> None:
    """Load the records into a new file and serve it, at an address that is printed, until standard input ends."""
    file, count = sys.argv[1:]
    database = connect(file)
    import pyarrow as pa

    from .servers import SCHEMA, records
    from .stores import TABLE

    columns = ", ".join(f"{name} VARCHAR" for name in SCHEMA.names[1:])
    database.execute(f"CREATE TABLE {TABLE} (key BIGINT PRIMARY KEY, {columns})")
    database.register("given", pa.RecordBatchReader.from_batches(SCHEMA, records(int(count))))
    database.execute(f"INSERT INTO {TABLE} FROM given")
    database.unregister("given")
    database.execute("CHECKPOINT")
    address = f"quack:localhost:{free_port()}"
    database.execute(f"CALL quack_serve('{address}', token = '{TOKEN}')")
    print(address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
