"""``format("nyala")``: what Spark asks for, handed to whom it concerns."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .batch_read import BatchReader, source_schema
from .options import ReadOptions, parse


class NyalaDataSource(DataSource):
    """A table of a store behind Arrow Flight. Spark makes one for each read or write, in processes of its own."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nyala"

    def schema(self) -> StructType:
        """The columns of a table, or those chosen."""
        return source_schema(parse(ReadOptions, self.options, "read"))

    def reader(self, schema: StructType) -> BatchReader:
        """See BatchReader."""
        return BatchReader(schema, parse(ReadOptions, self.options, "read"))
