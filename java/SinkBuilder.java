package io.nyala.spark;

import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/**
 * What writes, in Python; the output mode {@code update} of a stream too, whose rows are upserted as all are.
 *
 * <p>{@code isStatement} says that it is one, or a stream, and that nobody has told which columns it leaves out.
 */
record SinkBuilder(PythonWriteBuilder python, boolean isStatement)
    implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
  @Override
  public Write build() {
    Write write = python.build();
    return isStatement ? new StreamOnly(write) : write;
  }

  @Override
  public WriteBuilder truncate() {
    python.truncate();
    return this;
  }

  /** Of a stream Spark fills in nothing. */
  private record StreamOnly(Write write) implements Write {
    @Override
    public BatchWrite toBatch() {
      throw new IllegalStateException(
          "Spark does not tell which columns a statement leaves out, which may be those of rows that are there: start "
              + "it with spark.sql.extensions=" + NyalaExtensions.class.getName() + ", or write by df.write");
    }

    @Override
    public StreamingWrite toStreaming() {
      return write.toStreaming();
    }
  }
}
