"""Lets Spark find ``format("nyala")``: it searches all packages named ``pyspark_...`` for a ``DefaultSource``."""

from nyala.clients.spark.source import NyalaDataSource as DefaultSource

__all__ = ["DefaultSource"]
