package io.nyala.spark.read;

import io.nyala.flight.BatchDecoder;
import io.nyala.flight.ScanParts;
import io.nyala.flight.ScanReader;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads one part of a scan in a task: the vectors that came are what Spark gets. */
final class PartReader implements PartitionReader<ColumnarBatch> {
  private final ScanReader reader;
  private final BatchDecoder decoder;
  private final ArrowCells[] columns;
  private final ColumnarBatch batch;
  private final List<TimeStampVector> clocks = new ArrayList<>();
  private final ZoneId zone;

  PartReader(PartReaderFactory what, ScanParts.Part part) {
    zone = DateTimeUtils.getZoneId(what.zone());
    reader = new ScanReader(what.uri(), what.credentials(), what.planned(), part);
    decoder = new BatchDecoder(reader);
    try {
      columns = columns(what);
      batch = new ColumnarBatch(columns);
    } catch (RuntimeException error) {
      decoder.close();
      throw error;
    }
  }

  private ArrowCells[] columns(PartReaderFactory what) {
    StructField[] fields = what.schema().fields();
    ArrowCells[] columns = new ArrowCells[fields.length];
    for (int place = 0; place < fields.length; place++) {
      FieldVector cells = decoder.vectors().get(what.places()[place]);
      columns[place] = ArrowCells.of(fields[place].dataType(), cells);
      columns[place].clocks().forEach(clocks::add);
    }
    return columns;
  }

  @Override
  public boolean next() {
    int rows = decoder.next();
    if (rows < 0) {
      return false;
    }
    for (ArrowCells cells : columns) {
      cells.take(rows);
    }
    clocks.forEach(this::toClock);
    batch.setNumRows(rows);
    return true;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() {
    decoder.close();
  }

  /** Replaces moments by what a clock in the session's time zone shows then, as Spark's CAST does. */
  private void toClock(TimeStampVector cells) {
    long rows = Math.min(cells.getValueCount(), cells.getDataBuffer().capacity() / Long.BYTES); // as a server sent them
    for (int row = 0; row < rows; row++) {
      if (!cells.isNull(row)) {
        cells.set(row, DateTimeUtils.convertTz(cells.get(row), ZoneOffset.UTC, zone));
      }
    }
  }
}
