package io.nyala.spark.options;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A few rows that the driver has. */
public record LocalRows(StructType readSchema, InternalRow[] rows) implements LocalScan {
  public static LocalRows of(StructType schema, List<InternalRow> rows) {
    return new LocalRows(schema, rows.toArray(InternalRow[]::new));
  }

  /** Returns a row of cells as Spark has them inside; texts may be Java's. */
  public static InternalRow row(Object... cells) {
    Object[] inside = new Object[cells.length];
    for (int place = 0; place < cells.length; place++) {
      inside[place] = cells[place] instanceof String text ? UTF8String.fromString(text) : cells[place];
    }
    return new GenericInternalRow(inside);
  }
}
