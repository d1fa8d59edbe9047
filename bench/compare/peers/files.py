"""What the stores that are files have in common: nobody syncs them, so the benchmark does."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Sync every file and folder below, as the other stores do before they say that rows are durable."""
    for path in [folder, *folder.rglob("*")]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
