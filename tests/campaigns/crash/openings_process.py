"""A process that writes single rows with several threads, into its own store or over Arrow Flight, to be killed.

python tests/campaigns/crash/openings_process.py PLACE PROGRESS

PROGRESS: a file of `Progress`, which outlives the process

What step ``n`` of a writer does follows from ``n``: each key is inserted, and changed by the next step.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import pyarrow as pa

import nyala
from nyala.schemas.errors import StoreError
from tests.campaigns.options import database_at

SCHEMA = pa.schema(
    [
        pa.field("writer", pa.int64(), False),
        pa.field("number", pa.int64(), False),
        ("step", pa.int64()),
        ("text", pa.string()),
    ]
)


def progress_in(path: Path, taken: np.ndarray | None = None) -> np.ndarray:
    """Return the numbers of acknowledged steps, one a writer, int64, as the pages of a file: each write to them is
    there when the process has died. ``taken`` makes the file."""
    if taken is not None:
        path.write_bytes(taken.tobytes())
    return np.memmap(path, np.int64, "r+")


def main() -> None:
    place, progress = sys.argv[1], progress_in(Path(sys.argv[2]))
    with nyala.connect(place, retries=False) if "://" in place else database_at(place) as database:
        table = database.table("t")
        threads = [threading.Thread(target=_write, args=(table, writer, progress)) for writer in range(len(progress))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def _write(table: nyala.Table, writer: int, progress: np.ndarray) -> None:
    step = int(progress[writer])
    with suppress(StoreError):  # the server is gone
        while True:
            row = {"writer": writer, "number": step // 2, "step": step, "text": f"what step {step} of {writer} wrote"}
            table.write([row], "upsert" if step % 2 else "insert")
            step += 1
            progress[writer] = step


if __name__ == "__main__":
    main()
