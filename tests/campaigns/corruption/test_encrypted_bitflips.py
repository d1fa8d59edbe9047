"""The same flips on an encrypted store: each is found, and none is taken for a wrong key."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

import pytest

from nyala.engine.fs.encryption.opening import opened
from nyala.engine.wal.reader import LogReader
from tests.campaigns.corruption import test_store_bitflips as plain
from tests.campaigns.options import in_force
from tests.doubles.encrypted import KEY

CASES = [
    # kind of file, how the store was stopped, every how many bytes a bit is flipped
    ("manifest", "clean", 5),
    ("wal", "clean", 13),
    ("wal", "unclean", 13),
    ("base", "clean", 13),
    ("undo", "clean", 13),
    ("redo", "clean", 13),
]


@pytest.fixture(autouse=True)
def with_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(plain, "LogReader", lambda fs, path: LogReader(opened(fs, KEY), path))
    plain.victim.cache_clear()
    with in_force("encryption=on"):
        yield
    plain.victim.cache_clear()


def flips(content: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, content with one bit flipped), of the zeroes at the end only some."""
    used = len(content.rstrip(b"\0"))
    for offset in [*range(0, used, step), *range(used, len(content), 480)]:
        damaged = bytearray(content)
        damaged[offset] ^= 1 << offset // step % 8
        yield offset, bytes(damaged)


@pytest.mark.parametrize(("kind", "stop", "step"), CASES)
def test_no_bit_can_change_a_row(kind: str, stop: str, step: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    store = plain.victim(stop)
    seen: Counter[str] = Counter()
    paths = [path for path, content in store.files.items() if content and plain.kind_of(path) == kind]
    assert paths, f"the store has no {kind} file"
    for path in paths:
        content = store.files[path]
        assert content is not None and content.startswith(b"NYALAENC")
        last_record = content.rfind(b"NREC") if path == store.last_group[0] and stop == "unclean" else len(content)
        for offset, damaged in flips(content, step):
            found = plain.outcome(store, path, damaged)
            allowed = {"named", "right", "prefix"} if offset >= last_record else {"named"}
            assert found in allowed, f"{path}, byte {offset} of {len(content)}: {found}"
            seen[found] += 1
    assert seen["named"] > 20, seen


@pytest.mark.parametrize("path", ["keys", "keys.copy"])
def test_damaged_keys_have_a_copy(path: str) -> None:
    store = plain.victim("clean")
    content = store.files[path]
    assert content is not None and not content.startswith(b"NYALAENC")
    for offset in range(0, len(content), 31):
        damaged = bytearray(content)
        damaged[offset] ^= 1 << offset % 8
        assert plain.outcome(store, path, bytes(damaged)) == "right"


@pytest.mark.parametrize("kind", ["manifest", "wal", "base", "redo"])
def test_no_file_can_be_cut_or_put_in_the_place_of_another(kind: str) -> None:
    store = plain.victim("clean")
    paths = [path for path, content in store.files.items() if content and plain.kind_of(path) == kind]
    content = store.files[paths[0]]
    assert content is not None
    for size in (0, 1, 100, 128, 129, 144, len(content) // 2, len(content) - 1):
        assert plain.outcome(store, paths[0], content[:size]) == "named", size
    others = [path for path, there in store.files.items() if there and path != paths[0] and path.startswith(("w", "t"))]
    for other in others:
        moved = store.files[other]
        assert moved is not None
        assert plain.outcome(store, paths[0], moved) == "named", other
