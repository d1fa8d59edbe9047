"""``format("nyala")``: what Spark asks for, handed to whom it concerns."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from .batch_read import BatchReader, source_schema
from .batch_write import BatchWriter
from .options import ReadOptions, StreamReadOptions, StreamWriteOptions, WriteOptions, is_of_stream, parse
from .stream_read import StreamReader
from .stream_write import StreamWriter


class NyalaDataSource(DataSource):
    """A table of a store behind Arrow Flight. Spark makes one for each read or write, in processes of its own."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nyala"

    def schema(self) -> StructType:
        """The columns of a table or of its changes, or those chosen. Whether for a stream, Spark does not say."""
        if is_of_stream(self.options):
            return source_schema(parse(StreamReadOptions, self.options, "readStream"))
        return source_schema(parse(ReadOptions, self.options, "read"))

    def reader(self, schema: StructType) -> BatchReader:
        """See BatchReader."""
        return BatchReader(schema, parse(ReadOptions, self.options, "read"))

    def streamReader(self, schema: StructType) -> StreamReader:
        """See StreamReader."""
        return StreamReader(schema, parse(StreamReadOptions, self.options, "readStream"))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """See BatchWriter."""
        return BatchWriter(schema, overwrite, parse(WriteOptions, self.options, "write"))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """See StreamWriter."""
        return StreamWriter(schema, overwrite, parse(StreamWriteOptions, self.options, "writeStream"))
