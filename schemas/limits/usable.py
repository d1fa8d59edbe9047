"""The memory that this process may use: that of the machine, or less in a container or a unit of systemd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def usable_memory(groups: Path = _GROUPS, own: Path = _OWN_GROUPS) -> int:
    """Return the bytes of memory that this process may use: of the machine, or the least limit of its control groups.

    ``groups`` is where these are mounted, version 1 or 2, and ``own`` the file that names those of the process.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(groups, own)])


def _limits(groups: Path, own: Path) -> Iterator[int]:
    lines: list[str] = []
    with suppress(OSError):
        lines = own.read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):  # a limit of a group is one of all groups below it
            with suppress(OSError, ValueError):  # a group without a limit has the word "max"
                yield int(root.joinpath(*parts[:depth], name).read_text())
