"""Walks through the house: the files that a call passes, and how often it climbs.

    python tests/house/walks.py

Each walk is one call through the public API, over Flight or on a directory, traced on all of its threads after a call
of the same kind has warmed up. A *file* is one of the product that runs. A *hop* is a pair of files of which one calls
the other. A hop *climbs* where the called file imports the caller, directly or through others, and the caller does not
import it: a callback, or a floor that was passed upward. Compiled kernels are not seen inside.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
from rich.console import Console
from rich.table import Table

import nyala
from tests.house import figures

ROOT = figures.ROOT
_ROWS = 2_000
_WARM = 3
_PRODUCT = tuple(f"{ROOT / folder}/" for folder in figures.FOLDERS)
Hop = tuple[str, str]


class Walk:
    """Hops of a call, from the innermost file of the product that calls to the file that is called."""

    def __init__(self) -> None:
        self.hops: dict[Hop, int] = {}

    def step(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call, as ``sys.setprofile`` reports it."""
        callee = frame.f_code.co_filename
        if event != "call" or not callee.startswith(_PRODUCT):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(_PRODUCT):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != callee:
            hop = caller.f_code.co_filename, callee
            self.hops[hop] = self.hops.get(hop, 0) + 1

    @property
    def files(self) -> set[str]:
        """Return all files that were passed."""
        return {file for hop in self.hops for file in hop}

    def climbs(self, reached: dict[str, set[str]]) -> list[Hop]:
        """Return the hops that climb. ``reached`` are the files that each file imports, directly or not."""
        return [
            (caller, callee)
            for caller, callee in self.hops
            if caller in reached.get(callee, ()) and callee not in reached.get(caller, ())
        ]


@contextmanager
def traced() -> Iterator[Walk]:
    """Trace this thread, and the threads of the server while a call of Flight runs on them."""
    walk = Walk()
    _SERVED.append(walk)
    threading.setprofile(walk.step)
    sys.setprofile(walk.step)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        _SERVED.remove(walk)


_SERVED: list[Walk] = []


def trace_server() -> None:
    """Let the methods of the server, which run on threads of gRPC, trace themselves."""
    from nyala.flight_server.server import FlightServer

    for name in ("do_put", "do_get", "do_action", "do_exchange", "get_flight_info"):
        setattr(FlightServer, name, _tracing(getattr(FlightServer, name)))


def _tracing(method: Callable[..., Any]) -> Callable[..., Any]:
    def step(frame: FrameType, event: str, argument: Any) -> None:
        if _SERVED:
            _SERVED[-1].step(frame, event, argument)

    def run(*arguments: Any) -> Any:
        sys.setprofile(step)
        return method(*arguments)

    return run


def walks(folder: Path) -> Iterator[tuple[str, Walk]]:
    """Yield each walk by its name."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("s", pa.string())])

    def batch(first: int) -> pa.RecordBatch:
        ids = range(first, first + _ROWS)
        return pa.record_batch([pa.array(ids), pa.array(ids), pa.array([str(each) for each in ids])], schema)

    def walk(call: Callable[[int], Any], *before: Callable[[int], Any]) -> Walk:
        for number in range(_WARM):
            for each in (*before, call):
                each(number)
        for each in before:
            each(_WARM)
        with traced() as steps:
            call(_WARM)
        return steps

    from nyala.flight_server.server import FlightServer

    trace_server()
    embedded = nyala.open(folder, maintenance="off")
    server = FlightServer(embedded._store, "grpc://127.0.0.1:0")
    with nyala.connect(f"grpc://127.0.0.1:{server.port}") as db:
        table = db.create_table("rows", schema, ["id"])
        table.upsert(batch(0))
        yield "upsert of a batch, over Flight", walk(lambda n: table.upsert(batch(n * _ROWS)))
        yield "durable row, over Flight", walk(lambda n: table.upsert([{"id": n, "v": n, "s": "a"}]))
        yield "filtered scan, over Flight", walk(lambda n: table.scan(where=f"v > {n} AND s < '5'").to_arrow())
        yield "get, over Flight", walk(lambda n: table.get(n))

        def change(number: int) -> None:
            table.upsert(batch(number))

        def flush(_: int) -> None:
            table.maintain("flush")

        yield "flush", walk(flush, change)
        yield "merge", walk(lambda _: table.maintain("compact"), change, flush)
    server.shutdown()
    embedded.close()


def reached() -> dict[str, set[str]]:
    """Return for each file of the product all files that it imports, directly or not."""
    modules = figures._modules()
    imports = {name: set(figures._imports(name, file, modules, type_only=False)) for name, file in modules.items()}
    files: dict[str, set[str]] = {}
    for name, file in modules.items():
        seen: set[str] = set()
        ahead = [name]
        while ahead:
            new = imports.get(ahead.pop(), set()) - seen
            seen |= new
            ahead += new
        files[str(file)] = {str(modules[each]) for each in seen if each in modules}
    return files


def main() -> None:
    """Print the walks."""
    below = reached()
    summary = Table("walk", "files", "rooms", "hops", "climbs")
    with tempfile.TemporaryDirectory() as folder:
        for name, walk in walks(Path(folder)):
            climbs = walk.climbs(below)
            rooms = {Path(file).parent for file in walk.files}
            summary.add_row(name, *(str(len(each)) for each in (walk.files, rooms, walk.hops, climbs)))
            if "-v" in sys.argv:
                for hop in climbs:
                    print(name, *(Path(each).relative_to(ROOT) for each in hop))
    Console().print(summary)


if __name__ == "__main__":
    main()
