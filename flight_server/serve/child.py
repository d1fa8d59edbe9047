"""One of the processes of a store: a server of the placement, which ends when its parent does.

Its options are the first line of standard input, as JSON. The parent keeps the other end of that pipe open while it
lives; so the end of the input is the end of the parent, even of one that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from pydantic_core import from_json

from ...clients.cli.run import run
from ..settings.settings import read_settings
from .start import serve_one

LINE_BYTES_MAX = 1 << 20


def main() -> None:
    """Run one of several server processes of a store: serve until SIGTERM, or until the parent is gone."""
    os.umask(0o077)  # what listens is for this user alone
    os.environ.pop("NOTIFY_SOCKET", None)  # the parent tells the service manager
    given = from_json(_line())
    threading.Thread(target=_watch_parent, name="nyala-parent", daemon=True).start()
    serve_one(read_settings(given, (), {}, None))


def _line() -> bytes:
    """Read the first line without a buffer: the thread that watches the parent must see the end of the input."""
    line = b""
    while not line.endswith(b"\n"):
        read = os.read(sys.stdin.fileno(), LINE_BYTES_MAX)
        if not read:
            sys.exit("the options of this process come on standard input: start it with `nyala serve --processes`")
        line += read
    return line


def _watch_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run(main)
