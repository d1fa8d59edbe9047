"""``format("nyala")``: passes Spark's requests to the modules that handle them.

Spark starts several processes for one query, each for one of these purposes: so each imports only what it needs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from ...schemas.errors import StoreError
from .options import BatchReadOptions, StreamReadOptions, StreamWriteOptions, WriteOptions, parse
from .plain_errors import plain_errors

if TYPE_CHECKING:
    from .batch_read import BatchReader
    from .batch_write import BatchWriter
    from .stream_read import StreamReader
    from .stream_write import StreamWriter


class NyalaDataSource(DataSource):
    """A table of a store behind Arrow Flight. Spark creates one for each read or write, in its own processes."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "nyala"

    @plain_errors
    def schema(self) -> StructType:
        """The columns of a table or of its changes, or those chosen. Spark does not say whether for a stream."""
        from .batch_read import asked_schema

        return asked_schema(self.options)

    @plain_errors
    def reader(self, schema: StructType) -> BatchReader:
        """See BatchReader."""
        from .batch_read import BatchReader

        return BatchReader(schema, parse(BatchReadOptions, self.options, "read"))

    @plain_errors
    def streamReader(self, schema: StructType) -> StreamReader:
        """See StreamReader. Spark 4.3 would hide an error that is raised here behind one of its own."""
        from .stream_read import FailedReader

        try:
            return self._stream_reader(schema)
        except StoreError as error:
            return FailedReader(error, partial(self._stream_reader, schema))

    def _stream_reader(self, schema: StructType) -> StreamReader:
        from .stream_read import StreamReader

        return StreamReader(schema, parse(StreamReadOptions, self.options, "readStream"))

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """See BatchWriter."""
        from .batch_write import BatchWriter

        return BatchWriter(schema, overwrite, parse(WriteOptions, self.options, "write"))

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """See StreamWriter."""
        from .stream_write import StreamWriter

        return StreamWriter(schema, overwrite, parse(StreamWriteOptions, self.options, "writeStream"))
