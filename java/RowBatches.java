package io.nyala.spark;

import io.nyala.flight.BatchEncoder;
import io.nyala.flight.StagingPut;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import scala.jdk.javaapi.CollectionConverters;

/** Some columns of rows of a task, as Arrow batches that are staged. For one thread. */
final class RowBatches implements AutoCloseable {
  private static final int ROWS_MAX = 1 << 16;
  private static final long TEXT_BYTES_MAX = 4 << 20;

  private final ProjectingInternalRow columns;
  private final BatchEncoder encoder;
  private final ArrowWriter writer;
  private final StagingPut put;
  private final List<BaseVariableWidthVector> texts = new ArrayList<>();
  private int rows;

  /** {@code names} are the columns of {@code schema} to write; {@code open} starts a part with such columns. */
  RowBatches(StructType schema, List<String> names, Function<byte[], StagingPut> open) {
    StructField[] fields = names.stream().map(name -> plain(schema.apply(name))).toArray(StructField[]::new);
    StructType written = new StructType(fields);
    List<Object> places = new ArrayList<>();
    names.forEach(name -> places.add(schema.fieldIndex(name)));
    columns = ProjectingInternalRow.apply(written, CollectionConverters.asScala(places).toIndexedSeq());
    Schema arrow = ArrowUtils.toArrowSchema(written, "UTC", true);
    put = open.apply(BatchEncoder.columns(arrow));
    encoder = new BatchEncoder(arrow);
    try {
      writer = ArrowWriter.create(encoder.root());
    } catch (RuntimeException error) {
      encoder.close();
      throw error;
    }
    encoder.root().getFieldVectors().forEach(vector -> {
      if (vector instanceof BaseVariableWidthVector text) {
        texts.add(text);
      }
    });
  }

  private static StructField plain(StructField field) {
    return new StructField(field.name(), field.dataType(), field.nullable(), Metadata.empty());
  }

  void add(InternalRow row) {
    columns.project(row);
    writer.write(columns);
    rows++;
    if (rows == ROWS_MAX || textBytes() >= TEXT_BYTES_MAX) {
      send();
    }
  }

  /** Returns the parts that have the rows, once they are on the server's disk. */
  List<String> finish() {
    if (rows > 0) {
      send();
    }
    return put.finish();
  }

  @Override
  public void close() {
    encoder.close();
  }

  private void send() {
    writer.finish();
    encoder.sendTo(put);
    writer.reset();
    rows = 0;
  }

  private long textBytes() {
    long bytes = 0;
    for (BaseVariableWidthVector text : texts) {
      bytes += text.getOffsetBuffer().getInt((long) rows * BaseVariableWidthVector.OFFSET_WIDTH);
    }
    return bytes;
  }
}
