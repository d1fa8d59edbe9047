"""Tables in Spark, beside ``spark.read.format("nyala")``. Importing this does not load Spark.

spark = nyala.spark.configure(SparkSession.builder).getOrCreate()
homes = nyala.spark.read_table(spark, "homes", "grpc://127.0.0.1:8815", where="price > 4")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nyala.clients.executors.spark_session import configure as configure
    from nyala.clients.executors.spark_shim import build_shim as build_shim
    from nyala.clients.spark.api import by_tablet as by_tablet
    from nyala.clients.spark.api import merge_changes as merge_changes
    from nyala.clients.spark.api import read_table as read_table
    from nyala.clients.spark.api import write_table as write_table

_HOMES = {
    "build_shim": "nyala.clients.executors.spark_shim",
    "by_tablet": "nyala.clients.spark.api",
    "configure": "nyala.clients.executors.spark_session",
    "merge_changes": "nyala.clients.spark.api",
    "read_table": "nyala.clients.spark.api",
    "write_table": "nyala.clients.spark.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
