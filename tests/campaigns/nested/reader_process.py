"""A second process, which reads stores that other processes have open.

    python tests/campaigns/nested/reader_process.py [--stale]

A line of input is JSON: the ``path`` of a store, a file ``to`` write, and a moment ``as_of`` or null. The process
answers each line when all rows of table ``t`` are in the file. A line without a path closes the store. With ``--stale``
a store is looked at only when it is opened, which is a mistake that the campaign must find.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import pyarrow as pa

import nyala
from nyala.engine.replica.read_only_store import ReadOnlyStore


def main() -> None:
    """Answer lines until they end."""
    opened: tuple[str, nyala.Database] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        if opened and opened[0] != request.get("path"):
            opened[1].close()
            opened = None
        if "path" in request:
            opened = opened or (request["path"], nyala.open(request["path"], read_only=True))
            rows = opened[1].table("t").scan(ordered=True, as_of=request["as_of"]).to_arrow()
            with pa.OSFile(request["to"], "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
        os.write(1, b"read\n")


if __name__ == "__main__":
    if "--stale" in sys.argv:
        look = ReadOnlyStore._look
        ReadOnlyStore._look = lambda self, seconds: look(self, seconds + 60)  # type: ignore[method-assign]
    main()
