"""Installs files of a release into empty environments, and runs the example of the README there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .shell import CommandError, environment, run

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
        self.cache.mkdir(parents=True)
        run(sys.executable, "-m", "venv", "--without-pip", folder / "venv", folder=folder)

    def install(self, *requirements: str) -> None:
        """Install packages from the index, or files with extras."""
        pip = (sys.executable, "-m", "pip", "--python", self.python, "install", "--quiet", "--no-compile")
        run(*pip, "--disable-pip-version-check", "--root-user-action", "ignore", *requirements, folder=self.folder)

    def execute(self, program: str, *arguments: str, **variables: str) -> str:
        """Run a program of Python in a new folder, and return what it prints."""
        place = self.folder / f"run-{len(list(self.folder.glob('run-*')))}"
        place.mkdir()
        variables |= {"NYALA_CACHE_DIR": str(self.cache)}
        return run(self.python, "-c", program, *arguments, folder=place, seconds=600, **variables)

    def kernels(self) -> str:
        """Return the level of the compiled kernels that this environment uses; nothing if there are none for it."""
        return self.execute(_KERNELS).strip()

    def compiled(self) -> list[str]:
        """Return what was compiled here, since the installation brought nothing for it."""
        return sorted(file.name for file in self.cache.rglob("*") if file.suffix in (".kernels", ".nbi", ".nbc"))

    def run_spark(self, uri: str) -> None:
        """Read a table by SQL in Spark, with the jar that was installed, and with no compiler of Java to be found.

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
                env=environment(NYALA_CACHE_DIR=str(self.cache)),
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


def _address(lines: Iterator[str], log: Path) -> str:
    for line in lines:
        if matched := _ADDRESS.search(line):
            return matched[1]
    raise CommandError(f"the server does not start:\n{log.read_text()[-2000:]}")
