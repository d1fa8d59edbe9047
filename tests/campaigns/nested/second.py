"""A second process that reads stores, for all tables of a run: its start costs more than its reads."""

from __future__ import annotations

import atexit
import functools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from tempfile import TemporaryDirectory
from typing import IO, cast

import pyarrow as pa


class Reader:
    """A process of ``reader_process.py``."""

    def __init__(self, *planted: str) -> None:
        program = Path(__file__).with_name("reader_process.py")
        self._process = Popen([sys.executable, str(program), *planted], stdin=PIPE, stdout=PIPE, text=True)
        self._folder = TemporaryDirectory(prefix="nested-")

    @staticmethod
    @functools.cache
    def running() -> Reader:
        """Return the one that serves all tables until this process ends."""
        reader = Reader()
        atexit.register(reader.end)
        return reader

    def rows(self, store: Path, as_of: int | None = None) -> pa.Table:
        """Return the rows of table ``t`` as the process reads them."""
        path = Path(self._folder.name) / "rows.arrow"
        self._ask({"path": str(store), "to": str(path), "as_of": as_of})
        return pa.ipc.open_file(path.read_bytes()).read_all()

    @contextmanager
    def closed_after(self) -> Iterator[Reader]:
        """Let the process close its store at the end of the block."""
        yield self
        self._ask({})

    def _ask(self, request: dict[str, object]) -> None:
        to, back = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        to.write(json.dumps(request) + "\n")
        to.flush()
        assert back.readline() == "read\n", f"the reader has ended: {self._process.poll()}"

    def end(self) -> None:
        """End the process."""
        cast(IO[str], self._process.stdin).close()
        self._process.wait(60)
        cast(IO[str], self._process.stdout).close()
        self._folder.cleanup()
