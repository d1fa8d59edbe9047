"""The memory of a process is that of its machine, or the least limit of the control groups that it is in."""

import os
from pathlib import Path

import pytest

from nyala.schemas.limits.usable import usable_memory

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
GIB = 1 << 30


def usable(directory: Path, own: str, limits: dict[str, object]) -> int:
    for name, limit in limits.items():
        file = directory / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{limit}\n")
    (directory / "own").write_text(own)
    return usable_memory(directory / "groups", directory / "own")


@pytest.mark.parametrize(
    ("own", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": GIB}, GIB),  # a container sees its own group as the root
        ("0::/system.slice/nyala.service\n", {"system.slice/nyala.service/memory.max": GIB // 2}, GIB // 2),
        ("0::/a/b\n", {"a/memory.max": GIB // 4, "a/b/memory.max": GIB}, GIB // 4),
        ("0::/a/b\n", {"a/memory.max": "max", "a/b/memory.max": "max"}, MACHINE),
        ("0::/a\n", {}, MACHINE),
        ("4:memory:/docker/x\n0::/\n", {"memory/memory.limit_in_bytes": GIB}, GIB),
        ("4:cpu,memory:/x\n", {"memory/x/memory.limit_in_bytes": GIB}, GIB),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": (1 << 63) - 4096}, MACHINE),  # version 1 has no word for it
        ("4:cpu:/x\n", {"memory/memory.limit_in_bytes": GIB}, MACHINE),
        ("0::/../outside\n", {"outside/memory.max": GIB}, GIB),
    ],
)
def test_the_least_limit_counts(tmp_path: Path, own: str, limits: dict[str, object], expected: int) -> None:
    assert usable(tmp_path, own, limits) == min(expected, MACHINE)


def test_a_machine_without_control_groups_has_all_of_its_memory(tmp_path: Path) -> None:
    assert usable_memory(tmp_path / "none", tmp_path / "nothing") == MACHINE
    assert 0 < usable_memory() <= MACHINE
