"""Builds the sdist and the wheels of a commit.

A wheel without kernels fits every platform, and is all that a client needs. A wheel for Linux on one kind of processor
has the kernels compiled for it besides; where both fit, pip takes that one. Both are built from the sdist, which so is
shown to be complete. All of them have the jars for Spark.
"""

from __future__ import annotations

import copy
import gzip
import os
import shutil
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from docsite.pages import absolute
from pyspark.find_spark_home import _find_spark_home

from nyala.clients.executors.spark_shim import SHIPPED, jar_name
from nyala.engine.kernels.ahead.levels import LEVELS

from .shell import run

MACHINES = tuple(dict.fromkeys(level.machine for level in LEVELS))
"""The kinds of processors that kernels are compiled for: a wheel each."""
KERNELS = Path("engine/kernels/ahead/libraries")
"""Where the sources of a wheel have the compiled kernels."""
_COMPILE = """
import sys
from pathlib import Path
from nyala.engine.kernels.ahead.levels import LEVELS
from nyala.engine.kernels.compile.making import compile_library
compile_library(Path(sys.argv[2]), next(level for level in LEVELS if level.name == sys.argv[1]))
"""
PLATFORM = "manylinux_2_17_{}"
"""Kernels call only liblz4 and functions that every C library has, and so fit each Linux that numba fits."""


@dataclass(frozen=True)
class Sources:
    """A clean copy of a commit in a folder; ``seconds`` is the commit's time, which all files of the release get."""

    folder: Path
    seconds: int

    @property
    def variables(self) -> dict[str, str]:
        """The environment of tools that build: times come from the commit."""
        return {"SOURCE_DATE_EPOCH": str(self.seconds), "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}


def clean_sources(repository: Path, commit: str, folder: Path) -> Sources:
    """Write the files of a commit, and no others, into a new folder. Links in the README go to the release's tag in the
    repository, since an index of packages shows it, too."""
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--output", archive, commit, folder=repository)
    with tarfile.open(archive) as files:
        unpack(files, folder)
    seconds = int(run("git", "log", "-1", "--format=%ct", commit, folder=repository))
    readme = folder / "README.md"
    readme.write_text(absolute(readme.read_text(), f"v{version(folder)}"))
    os.utime(readme, (seconds, seconds))
    return Sources(folder, seconds)


def unpack(files: tarfile.TarFile, folder: Path) -> None:
    """Unpack an archive of ours. Python before 3.11.4 has no filters, and later ones ask for one."""
    if hasattr(tarfile, "data_filter"):
        files.extraction_filter = tarfile.data_filter
    files.extractall(folder)


def version(sources: Path) -> str:
    """Return the version that sources have."""
    return tomllib.loads((sources / "pyproject.toml").read_text())["project"]["version"]


def build_jars(sources: Sources, scratch: Path) -> Iterator[Path]:
    """Compile the shim of each version of Spark in ``SHIPPED`` into the sources. Needs a JDK."""
    run(".ci/typing_links.sh", folder=sources.folder)
    for spark in SHIPPED:
        run(
            *(sys.executable, "-m", "nyala", "spark", "build-shim", "--folder", sources.folder / "java"),
            folder=scratch,
            PYTHONPATH=str(sources.folder / ".typing"),
            SPARK_HOME=str(_spark_home(spark, scratch)),
        )
        yield sources.folder / "java" / jar_name(spark)


def _spark_home(version: str, scratch: Path) -> Path:
    """Return the folder of a Spark: the installed one, or one that is downloaded."""
    installed = Path(_find_spark_home())
    if any(installed.glob(f"jars/spark-sql_*-{version}.jar")):
        return installed
    target = scratch / f"spark-{version}"
    words = ("-m", "pip", "install", "--quiet", "--no-deps", "--target", target, f"pyspark=={version}")
    run(sys.executable, *words, folder=scratch)
    return target / "pyspark"


def build_sdist(sources: Sources, out: Path) -> Path:
    """Build the sdist, with the jars and without kernels."""
    _build("--sdist", sources, out)
    (sdist,) = out.glob("*.tar.gz")
    set_times(sdist, sources.seconds)
    return sdist


def build_plain_wheel(sdist: Path, sources: Sources, out: Path, scratch: Path) -> Path:
    """Build the wheel without kernels from the sdist."""
    unpacked = _unpack(sdist, sources, scratch / "plain")
    _build("--wheel", unpacked, out)
    (wheel,) = out.glob("*-any.whl")
    return wheel


def compile_kernels(plain: Path, scratch: Path) -> Path:
    """Compile the kernels of the code in a wheel for all processors, and return their folder: some minutes."""
    site = scratch / "site"
    with zipfile.ZipFile(plain) as wheel:
        wheel.extractall(site)
    libraries = site / "nyala" / KERNELS
    libraries.mkdir()

    def compile_level(level: str) -> None:
        run(sys.executable, "-c", _COMPILE, level, libraries, folder=scratch, PYTHONPATH=str(site))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_level, [level.name for level in LEVELS]))
    return libraries


def build_kernel_wheel(sdist: Path, kernels: Path, machine: str, sources: Sources, out: Path, scratch: Path) -> Path:
    """Build the wheel for Linux on a kind of processor from the sdist and the compiled kernels."""
    unpacked = _unpack(sdist, sources, scratch / machine)
    place = unpacked.folder / KERNELS
    place.mkdir()
    for level in LEVELS:
        if level.machine == machine:
            (library,) = kernels.glob(f"{level.name}-{'[0-9a-f]' * 16}.kernels")
            shutil.copy2(library, place)
            os.utime(place / library.name, (sources.seconds, sources.seconds))
    platform = PLATFORM.format(machine)
    _build("--wheel", unpacked, out, f"--config-setting=--build-option=--plat-name={platform}")
    (wheel,) = out.glob(f"*-{platform}.whl")
    return wheel


def _build(kind: str, sources: Sources, out: Path, *options: str) -> None:
    words = ("-m", "build", kind, "--no-isolation", "--outdir", out, *options, sources.folder)
    run(sys.executable, *words, folder=out, **sources.variables)


def _unpack(sdist: Path, sources: Sources, folder: Path) -> Sources:
    with tarfile.open(sdist) as files:
        unpack(files, folder)
    (inside,) = folder.iterdir()
    return Sources(inside, sources.seconds)


def set_times(sdist: Path, seconds: int) -> None:
    """Write an sdist anew with one time and no owner, so that one commit always gives the same bytes."""
    part = sdist.with_suffix(".part")
    with (
        tarfile.open(sdist) as old,
        part.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as packed,
        tarfile.open(mode="w", fileobj=packed, format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old, key=lambda each: each.name):
            content = old.extractfile(member) if member.isfile() else None
            mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            fixed = copy.copy(member)
            fixed.mtime, fixed.mode, fixed.uid, fixed.gid = seconds, mode, 0, 0
            fixed.uname = fixed.gname = ""
            fixed.pax_headers = {}
            new.addfile(fixed, content)
    part.replace(sdist)
