package io.nyala.spark.read;

import io.nyala.flight.ScanParts;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads the parts of a task, one after the other. */
final class TaskReader implements PartitionReader<ColumnarBatch> {
  private final PartReaderFactory what;
  private final Iterator<ScanParts.Part> rest;
  private PartReader part;

  TaskReader(PartReaderFactory what, List<ScanParts.Part> parts) {
    this.what = what;
    this.rest = parts.iterator();
  }

  @Override
  public boolean next() {
    while (part == null || !part.next()) {
      close();
      if (!rest.hasNext()) {
        return false;
      }
      part = new PartReader(what, rest.next());
    }
    return true;
  }

  @Override
  public ColumnarBatch get() {
    return part.get();
  }

  @Override
  public void close() {
    if (part != null) {
      part.close();
      part = null;
    }
  }
}
