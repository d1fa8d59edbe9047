package io.nyala.spark.write;

import io.nyala.flight.BatchEncoder;
import io.nyala.flight.StagingPut;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/** Some columns of rows of a task, as Arrow batches that are staged. For one thread. */
final class RowBatches implements AutoCloseable {
  private static final int ROWS_MAX = 1 << 16;
  private static final int BYTES_MAX = 4 << 20; // of texts, or of the other cells

  private final BatchEncoder encoder;
  private final StagingPut put;
  private final List<CellWriter> cells = new ArrayList<>();
  private final int rowsMax;
  private int rows;

  /** {@code names} are the columns of {@code schema} to write; {@code open} starts a part with such columns. */
  RowBatches(StructType schema, List<String> names, Function<byte[], StagingPut> open) {
    StructField[] fields = names.stream().map(name -> plain(schema.apply(name))).toArray(StructField[]::new);
    Schema arrow = ArrowUtils.toArrowSchema(new StructType(fields), "UTC", false); // offsets of 32 bits
    put = open.apply(BatchEncoder.columns(arrow));
    encoder = new BatchEncoder(arrow);
    int rowBytes = encoder.root().getFieldVectors().stream().mapToInt(CellWriter::width).sum();
    rowsMax = Math.min(ROWS_MAX, 1 + BYTES_MAX / Math.max(1, rowBytes));
    try {
      for (int column = 0; column < fields.length; column++) {
        int place = schema.fieldIndex(names.get(column));
        cells.add(new CellWriter(encoder.root().getVector(column), place, rowsMax));
      }
    } catch (RuntimeException error) {
      encoder.close();
      throw error;
    }
  }

  private static StructField plain(StructField field) {
    return new StructField(field.name(), field.dataType(), field.nullable(), Metadata.empty());
  }

  void add(InternalRow row) {
    long textBytes = 0;
    for (CellWriter each : cells) {
      each.write(row, rows);
      textBytes += each.textBytes();
    }
    rows++;
    if (rows == rowsMax || textBytes >= BYTES_MAX) {
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
    cells.forEach(each -> each.finish(rows));
    encoder.root().setRowCount(rows);
    encoder.sendTo(put);
    cells.forEach(CellWriter::reset);
    rows = 0;
  }
}
