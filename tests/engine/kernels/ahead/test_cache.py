"""Where compiled kernels go, and what happens when that place is missing, shared or damaged."""

import os
import re
import shutil
import stat
import subprocess
import sys
from grp import struct_group
from pathlib import Path
from pwd import struct_passwd

import pytest

from nyala.engine.kernels.ahead import cache, private

KERNEL = """
from numba.core import config
from nyala.engine.kernels.pages.lz4 import decompress_block
import numpy as np
packed = np.array([0x10, 97], np.uint8)  # one literal byte
raw = np.zeros(1, np.uint8)
assert decompress_block(packed.ctypes.data, 2, raw.ctypes.data, 1) == 1 and raw[0] == 97
stats = decompress_block.stats
print(config.CACHE_DIR, sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def run_kernel(base: Path, **environment: str) -> tuple[Path, int, int]:
    """Call one kernel in a new process; return its cache directory, cache hits and misses."""
    process = subprocess.run(
        [sys.executable, "-c", KERNEL],
        env={**os.environ, "NYALA_KERNELS": "jit", "NYALA_CACHE_DIR": str(base), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    directory, hits, misses = process.stdout.split()
    return Path(directory), int(hits), int(misses)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """What the first process leaves."""
    base = tmp_path_factory.mktemp("base")
    directory, hits, misses = run_kernel(base)
    assert (hits, misses) == (0, 1)
    assert directory.parent == base / "nyala" and directory.name.startswith("kernels-")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    return directory


@pytest.fixture
def directory(filled, tmp_path):
    """A copy of it, of the test's own."""
    return shutil.copytree(filled, tmp_path / "nyala" / filled.name)


def test_the_second_process_finds_what_the_first_compiled(tmp_path, directory):
    assert run_kernel(tmp_path) == (directory, 1, 0)


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [
        ("*.nbi", "truncated"),
        pytest.param("*.nbi", "zeros", marks=pytest.mark.night),
        pytest.param("*.nbc", "empty", marks=pytest.mark.night),
        ("*.nbc", "noise"),
    ],
)
def test_a_damaged_entry_is_compiled_again(tmp_path, directory, pattern, damage):
    for entry in directory.rglob(pattern):
        content = entry.read_bytes()
        half = len(content) // 2
        entry.write_bytes(
            {
                "truncated": content[:half],
                "empty": b"",
                "zeros": bytes(len(content)),
                "noise": bytes(range(256)) * 10,
            }[damage]
        )
    assert run_kernel(tmp_path) == (directory, 0, 1)
    assert run_kernel(tmp_path) == (directory, 1, 0)


def test_a_full_disk_costs_compiling_again_and_nothing_else(tmp_path, directory):
    """Entries cannot be written: the cache is a directory where numba wants a file."""
    for entry in [*directory.rglob("*.nbi"), *directory.rglob("*.nbc")]:
        entry.unlink()
        entry.mkdir()
    assert run_kernel(tmp_path) == (directory, 0, 1)
    assert run_kernel(tmp_path) == (directory, 0, 1)


def test_a_directory_that_cannot_be_made_is_replaced_by_a_temporary_one(tmp_path):
    obstacle = tmp_path / "file"
    obstacle.write_text("no directory")
    directory, hits, misses = run_kernel(obstacle)
    assert obstacle not in directory.parents
    assert (hits, misses) == (0, 1)
    assert not directory.exists(), "left behind"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_directory_is_replaced_by_a_temporary_one(tmp_path):
    tmp_path.chmod(0o500)
    directory, _, _ = run_kernel(tmp_path)
    tmp_path.chmod(0o700)
    assert tmp_path not in directory.parents


def test_an_unwritable_directory_is_not_used(tmp_path, monkeypatch):
    """The same for root, whom no mode stops: the probe file cannot be made."""
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path))

    def refuse(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(private.tempfile, "TemporaryFile", refuse)
    directory = cache.cache_directory()
    assert tmp_path not in directory.parents
    shutil.rmtree(directory)


def test_a_directory_that_others_may_write_to_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path))
    directory = cache.cache_directory()
    assert directory.parent == tmp_path / "nyala"
    directory.chmod(0o777)
    other = cache.cache_directory()
    assert other != directory and tmp_path not in other.parents
    shutil.rmtree(other)


@pytest.fixture
def above(tmp_path, monkeypatch):
    """A directory two levels above that of the kernels."""
    (tmp_path / "above" / "base").mkdir(parents=True)
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "above" / "base"))
    return tmp_path / "above"


def is_used(above):
    directory = cache.cache_directory()
    if above in directory.parents:
        return True
    shutil.rmtree(directory)
    return False


@pytest.mark.parametrize(("mode", "expected"), [(0o755, True), (0o777, False), (0o1777, True), (0o775, False)])
def test_nobody_else_may_replace_a_directory_above(above, monkeypatch, mode, expected, caplog):
    monkeypatch.setattr(private.grp, "getgrgid", lambda number: struct_group(("friends", "x", number, [])))
    above.chmod(mode)
    assert is_used(above) is expected
    assert (f"not kept in {above}" in caplog.text) is not expected


@pytest.mark.parametrize(("members", "expected"), [([], True), (["me"], True), (["me", "you"], False)])
def test_a_group_of_one_user_may_write_above(above, monkeypatch, members, expected):
    gid = above.stat().st_gid
    monkeypatch.setattr(private.pwd, "getpwuid", lambda uid: struct_passwd(("me", "x", uid, gid, "", "/", "")))
    monkeypatch.setattr(private.grp, "getgrgid", lambda number: struct_group(("me", "x", number, members)))
    above.chmod(0o775)
    assert is_used(above) is expected


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_nobody_else_may_own_a_directory_above(above):
    os.chown(above, 12345, 12345)
    assert not is_used(above)


def test_directories_behind_a_link_count(above, tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(above / "base")
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "link"))
    assert is_used(above)
    above.chmod(0o777)
    assert not is_used(above)


def test_without_a_home(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("NYALA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(private.Path, "home", no_home)
    directory = cache.cache_directory()
    assert directory.is_dir()
    shutil.rmtree(directory)


def test_the_base_is_ours_then_xdg_then_home(tmp_path, monkeypatch):
    monkeypatch.delenv("NYALA_CACHE_DIR", raising=False)
    monkeypatch.setattr(private.Path, "home", lambda: tmp_path / "home")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.cache_directory().is_relative_to(tmp_path / "home" / ".cache" / "nyala")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.cache_directory().is_relative_to(tmp_path / "xdg" / "nyala")
    monkeypatch.setenv("NYALA_CACHE_DIR", str(tmp_path / "ours"))
    assert cache.cache_directory().is_relative_to(tmp_path / "ours" / "nyala")


def test_an_edited_source_changes_the_digest(tmp_path):
    copy = tmp_path / "kernels"
    shutil.copytree(private.KERNELS_DIRECTORY, copy)
    before = private.source_digest(copy)
    assert before == private.source_digest()
    helper = copy / "simd" / "simd_llvm.py"
    helper.write_text(helper.read_text() + "\n# edited\n")
    assert private.source_digest(copy) != before


def test_no_two_files_of_kernels_share_a_name():
    """A library names a kernel by its file, without the room."""
    names = [source.stem for source in private.KERNELS_DIRECTORY.rglob("*.py") if source.stem != "__init__"]
    assert len(names) > 50 and len(names) == len(set(names))


def test_kernels_stand_in_the_folder_that_the_digest_covers():
    engine = private.KERNELS_DIRECTORY.parent
    compiles = re.compile(r"^\s*(@kernel|@inline|import numba|from numba)", re.MULTILINE)
    inside = {source for source in engine.rglob("*.py") if compiles.search(source.read_text())}
    assert private.KERNELS_DIRECTORY / "pages" / "blocks.py" in inside
    assert [source for source in inside if private.KERNELS_DIRECTORY not in source.parents] == []
