"""The folder of a server for the socket of its private port and for what statements spill."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_FOLDER = "nyala-sql-"
"""How the names of folders of sockets and spills begin; the number of their process follows."""


def new_folder() -> Path:
    """Return a folder for Flight SQL's socket and spilled rows, for this process and this user alone. Those that killed
    processes left are removed."""
    for each in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        number = each.name.removeprefix(_FOLDER).partition("-")[0]
        if number.isdigit() and each.stat().st_uid == os.getuid() and not Path(f"/proc/{number}").exists():
            shutil.rmtree(each, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-"))
