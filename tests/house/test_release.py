"""``make release``: which example it runs, how it knows its files again, and which wheel pip takes.

`tests/house/test_packaging.py` builds the sdist and the wheel. The release itself, with its kernels and its empty
environments, takes minutes: it is a step of the night.
"""

import gzip
import importlib.metadata
import io
import platform
import tarfile
from pathlib import Path

import pytest
from docsite import pages
from packaging.tags import Tag, sys_tags
from release import __main__ as main
from release import build, papers, trial

from nyala.clients.executors import spark_shim

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_example_is_the_one_that_the_readme_shows_and_the_tests_run() -> None:
    program = trial.example(README)
    assert f"<!-- run -->\n```python\n{program}```" in README
    compile(program, "README.md", "exec")
    assert trial.example(pages.absolute(README, "v9")) == program, "the README of the index has the same"


def test_a_client_runs_it_with_one_line_changed() -> None:
    before, after = trial.example(README).splitlines(), trial.client_example(README, "grpc://127.0.0.1:1").splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [('with nyala.open("data/") as db:', 'with nyala.connect("grpc://127.0.0.1:1") as db:')]


def test_a_readme_without_its_example_is_refused() -> None:
    with pytest.raises(ValueError, match="no runnable program"):
        trial.example(README.replace("<!-- run -->", ""))
    with pytest.raises(ValueError, match="over the network"):
        trial.client_example(README.replace("nyala.connect(", "connect("), "grpc://127.0.0.1:1")


def test_links_of_the_readme_work_where_an_index_shows_it() -> None:
    text = pages.absolute(README, "v9")
    assert f"]({pages.urls()['Source']}/blob/v9/docs/failover.md#replicas)" in text
    assert "](docs/" not in text and "](LICENSE)" not in text
    assert 'nyala.connect("grpc://127.0.0.1:8815")' in text


def test_a_file_that_changed_after_its_checksum_is_refused(tmp_path: Path) -> None:
    wheel, late = tmp_path / "a.whl", tmp_path / "late.whl"
    wheel.write_bytes(b"one")
    sums = papers.write_sums(tmp_path)
    assert sums.read_text() == f"7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed  {wheel.name}\n"
    papers.check(wheel)
    wheel.write_bytes(b"two")
    late.write_bytes(b"one")
    for file in (wheel, late):
        with pytest.raises(ValueError, match=f"{file.name} is not the file that SHA256SUMS names"):
            papers.check(file)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "SHA256SUMS").touch()
    old = tmp_path / "nyala-0.0.1.tar.gz"
    old.touch()
    mine = tmp_path / "mine.txt"
    mine.touch()
    with pytest.raises(ValueError, match=r"has other files \(mine.txt\)"):
        main.clear(tmp_path)
    assert old.exists()
    mine.unlink()
    main.clear(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_example_that_prints_something_else_is_no_pass() -> None:
    with pytest.raises(ValueError, match="prints something else"):
        main.result("Empty DataFrame")


def test_pip_takes_the_wheel_with_kernels_where_it_fits() -> None:
    tags = list(sys_tags())
    assert platform.machine() in build.MACHINES
    mine = Tag("py3", "none", build.PLATFORM.format(platform.machine()))
    assert tags.index(mine) < tags.index(Tag("py3", "none", "any")), "pip takes the first that fits"
    others = [Tag("py3", "none", build.PLATFORM.format(each)) for each in build.MACHINES if each != platform.machine()]
    assert others and not set(others) & set(tags)


def test_a_jar_is_shipped_for_the_spark_that_tests_run_on() -> None:
    assert importlib.metadata.version("pyspark") in spark_shim.SHIPPED


def test_an_sdist_is_the_same_whenever_it_is_made(tmp_path: Path) -> None:
    digests = set()
    for time in (1_000_000_000, 1_100_000_000):
        sdist = tmp_path / f"{time}.tar.gz"
        with sdist.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed:
            write_archive(packed, time)
        build.set_times(sdist, 1_200_000_000)
        with tarfile.open(sdist) as files:
            assert [(each.name, each.mtime, each.uid) for each in files] == [
                ("a", 1_200_000_000, 0),
                ("b", 1_200_000_000, 0),
            ]
        digests.add(papers.sha256(sdist))
    assert len(digests) == 1


def write_archive(packed: gzip.GzipFile, time: int) -> None:
    with tarfile.open(mode="w", fileobj=packed) as files:
        for name in ("b", "a") if time % 3 else ("a", "b"):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid = 1, time, time % 1000
            files.addfile(member, io.BytesIO(b"x"))
