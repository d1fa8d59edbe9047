"""Where Spark finds ``format("nyala")``: it looks into all packages called ``pyspark_...`` for a ``DefaultSource``."""

from nyala.clients.spark.source import NyalaDataSource as DefaultSource

__all__ = ["DefaultSource"]
