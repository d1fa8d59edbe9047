"""Installs files of a release into empty environments, and runs the example of the README there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .shell import CommandError, environment, run

PIP = (sys.executable, "-m", "pip")
QUIET = ("--quiet", "--no-compile", "--disable-pip-version-check", "--root-user-action", "ignore")
OPENS = 'nyala.open("data/")'
CONNECTS = re.compile(r'nyala\.connect\("(grpc://[^"]+)"\)')
_EXAMPLE = re.compile(r"^## Example\n.*?<!-- run -->\n+```python\n(.*?)^```(.*?)^## ", re.MULTILINE | re.DOTALL)
_ADDRESS = re.compile(r"listening on (grpc://\S+)")
_KERNELS = """
from nyala.engine.kernels.ahead.library import library
print(library().level if library() else "")
"""
_SHIM = """
from nyala.clients.executors.spark_shim import default_jar, why_not
raise SystemExit(why_not(default_jar()))
"""
_SPARK = """
import sys
from pyspark.sql import SparkSession
import nyala.spark
spark = nyala.spark.configure(SparkSession.builder.master("local[1]"), uri=sys.argv[1], shim=True).getOrCreate()
print(spark.sql("SELECT count(*) FROM nyala.default.homes").first()[0])
"""


def example(readme: str) -> str:
    """Return the program of the README's section "Example"."""
    return _matched(readme)[1]


def client_example(readme: str, uri: str) -> str:
    """Return that program for a client of a server, as the README says: with the one line changed."""
    program, instructions = _matched(readme).groups()
    changed = CONNECTS.search(instructions)
    if changed is None or program.count(OPENS) != 1:
        raise ValueError("the README does not say how to run its example over the network")
    return program.replace(OPENS, changed[0].replace(changed[1], uri))


def _matched(readme: str) -> re.Match[str]:
    matched = _EXAMPLE.search(readme)
    if matched is None:
        raise ValueError("the README has no runnable program in its section Example")
    return matched


class Environment:
    """An empty environment of Python in a folder, away from the sources, with a cache of its own for kernels."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.python = folder / "venv" / "bin" / "python"
        self.command: tuple[str, ...] = (str(self.python),)
        """What runs Python here."""
        self.variables = {"NYALA_CACHE_DIR": str(self.cache)}
        self.cache.mkdir(parents=True)
        self._prepare()

    def _prepare(self) -> None:
        run(sys.executable, "-m", "venv", "--without-pip", self.folder / "venv", folder=self.folder)

    def install(self, *requirements: str) -> None:
        """Install packages from the index, or files with extras."""
        run(*PIP, "--python", self.python, "install", *QUIET, *requirements, folder=self.folder)

    def execute(self, program: str, *arguments: str) -> str:
        """Run a program of Python in a new folder, and return what it prints."""
        place = self.folder / f"run-{len(list(self.folder.glob('run-*')))}"
        place.mkdir()
        return run(*self.command, "-P", "-c", program, *arguments, folder=place, **self.variables)

    def kernels(self) -> str:
        """Return the level of the compiled kernels that this environment uses; nothing if there are none for it."""
        return self.execute(_KERNELS).strip()

    def compiled(self) -> list[str]:
        """Return what was compiled here, since the installation brought nothing for it."""
        return sorted(file.name for file in self.cache.rglob("*") if file.suffix in (".kernels", ".nbi", ".nbc"))

    def run_spark(self, uri: str) -> None:
        """Read the table of the example by SQL in Spark, with the jar that was installed.

        Raises:
            CommandError: the jar does not fit, or Spark fails.
        """
        self.execute(_SHIM)
        rows = self.execute(_SPARK, uri).strip()
        if rows != "3":
            raise CommandError(f"Spark counts {rows} rows in place of 3")

    @contextmanager
    def server(self) -> Iterator[str]:
        """Run ``nyala serve`` over an empty store, and yield its address."""
        data, log = self.folder / "data", self.folder / "serve.log"
        words = (self.python.parent / "nyala", "serve", "--data", data, "--listen", "grpc://127.0.0.1:0")
        with (
            log.open("w") as errors,
            subprocess.Popen(
                list(map(str, words)),
                cwd=self.folder,
                env=environment(**self.variables),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                yield _address(process.stdout, log)
            finally:
                process.terminate()


class ArmEnvironment(Environment):
    """The same on an emulated 64-bit Arm, some 20 times as slow. ``emulator`` is the command that
    ``.ci/aarch64_root.sh`` prints."""

    def __init__(self, folder: Path, emulator: str) -> None:
        self._emulator = tuple(emulator.split())
        super().__init__(folder)

    def _prepare(self) -> None:
        self.command = self._emulator
        self._site = self.folder / "site"
        self.variables |= {"PYTHONPATH": str(self._site), "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode")}

    def install(self, *requirements: str) -> None:
        version = Path(self._emulator[-1]).name.removeprefix("python")
        platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 17)]
        platforms.append("--platform=manylinux2014_aarch64")
        fitting = ("--only-binary=:all:", "--implementation=cp", f"--python-version={version}", *platforms)
        run(*PIP, "install", *QUIET, *fitting, "--target", self._site, *requirements, folder=self.folder)


def arm_emulator(root: Path) -> str | None:
    """Return the command that runs Python for 64-bit Arm; None where neither it nor the right to install it is."""
    if shutil.which("qemu-aarch64") is None and os.geteuid() != 0:
        return None
    return run(root / ".ci" / "aarch64_root.sh", folder=root).strip()


def _address(lines: Iterator[str], log: Path) -> str:
    for line in lines:
        if matched := _ADDRESS.search(line):
            return matched[1]
    raise CommandError(f"the server does not start:\n{log.read_text()[-2000:]}")
