"""One process of a subject:  python -m bench.upserts.worker SUBJECT ADDRESS TASK FOLDER PROCESSES

It opens the store and reads its rows, writes a line, and waits for a line with the moment until which it may begin
calls. Then it does its task, writes a line of JSON for each call, and keeps the store open until standard input ends.
"""

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from . import rows
from .clients import Client
from .servers import SUBJECTS

PAUSE_SECONDS = 0.01, 0.05
"""How long a call waits before it tries again: a random time between these."""
WRITING = threading.Lock()

Action = Callable[[pa.Table, float], dict[str, Any]]


def timed(client: Client, write: Callable[[pa.Table], None]) -> Action:
    """Return a function that writes rows, again and again after conflicts, and tells how long that took."""

    def call(given: pa.Table, until: float) -> dict[str, Any]:
        begin, again = time.perf_counter(), 0
        while True:
            try:
                write(given)
                return {"seconds": time.perf_counter() - begin, "end": time.time(), "again": again}
            except client.conflicts as conflict:
                if time.time() > until:
                    return {"end": time.time(), "again": again, "error": str(conflict)[:300]}
            again += 1
            time.sleep(random.uniform(*PAUSE_SECONDS))

    return call


def tasks(client: Client, task: str, folder: Path, processes: list[int]) -> Iterator[Callable[[float], None]]:
    """Yield what each thread of this process has to do, with its rows in memory."""
    if task == "load":
        yield _calls([rows.read(folder / rows.BASE)], timed(client, client.load), 0)
    elif task == "large":
        yield _calls([rows.read(folder / rows.CHANGES)], timed(client, client.upsert), 0)
    elif task == "check":
        yield lambda _: print(json.dumps(asdict(rows.checked(client.scan(), folder))), flush=True)
    else:
        for process in processes:
            table = rows.read(folder / rows.small_file(process))
            calls = [pa.Table.from_batches([batch]) for batch in table.to_batches(rows.CALL_ROWS)]
            yield _calls(calls, timed(client, client.upsert), process)


def _calls(given: list[pa.Table], action: Action, process: int) -> Callable[[float], None]:
    def run(until: float) -> None:
        for each in given:
            if time.time() > until:
                break
            answer = action(each, until)
            with WRITING:
                print(json.dumps({"process": process, **answer}), flush=True)
            if "error" in answer:
                break

    return run


def main() -> None:
    """Do one task."""
    name, address, task, folder, processes = sys.argv[1:]
    with closing(SUBJECTS[name].client(address)) as client:
        work = list(tasks(client, task, Path(folder), [int(each) for each in processes.split(",")]))
        print("ready", flush=True)
        until = float(sys.stdin.readline())
        threads = [threading.Thread(target=run, args=(until,)) for run in work[1:]]
        for thread in threads:
            thread.start()
        work[0](until)
        for thread in threads:
            thread.join()
        print("end", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
