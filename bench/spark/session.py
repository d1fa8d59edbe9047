"""A session of Spark with two cores, as users run it, and a server in a process of its own."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

import nyala
from bench.compare.peers.nyala_subject import free_port, wait_until_open
from nyala.clients.spark.source import NyalaDataSource

PLAIN_FORMAT = "nyala_alone"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "4g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def session(folder: Path, uri: str | None = None) -> Iterator[SparkSession]:
    """Give a session that keeps its files in ``folder``, with the shim where there is a compiler of Java to build it.

    ``uri`` is the server of the catalog ``nyala``, if the session is to have one.
    Nothing is set that would spare the measured work. ``format(PLAIN_FORMAT)`` is the data source without the shim.
    """
    settings = SETTINGS | {"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder / "warehouse")}
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in settings.items():
        builder.config(name, value)
    jar = nyala.spark.build_shim(folder / "shim") if shutil.which("javac") else False
    made = nyala.spark.configure(builder, uri, jar).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    made.dataSource.register(_plain())
    try:
        yield made
    finally:
        made.stop()


def _plain() -> type[NyalaDataSource]:
    """Return the data source under a name that the shim does not know; made here, it is sent to Spark by its code."""

    class Plain(NyalaDataSource):
        @classmethod
        def name(cls) -> str:
            return PLAIN_FORMAT

    return Plain


class Server:
    """``nyala serve`` with its defaults, on an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port()
        self.url = f"grpc://127.0.0.1:{port}"
        command = [sys.executable, "-m", "nyala", "serve", "--data", str(folder), "--listen", self.url]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until_open(port, self.process)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)
