package io.nyala.spark.options;

import java.util.stream.Stream;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The mark of our columns, in their metadata: the columns of a user's own query do not have it. */
public final class ColumnMark {
  /** The key of the mark; its value is the server and the name of a whole table, or empty. */
  public static final String KEY = "nyala";

  private ColumnMark() {}

  public static boolean isOn(Metadata ofColumn) {
    return ofColumn.contains(KEY);
  }

  /** Returns the same columns, each with a mark. */
  public static StructType put(StructType schema) {
    return new StructType(Stream.of(schema.fields()).map(ColumnMark::put).toArray(StructField[]::new));
  }

  private static StructField put(StructField field) {
    if (isOn(field.metadata())) {
      return field;
    }
    Metadata metadata = new MetadataBuilder().withMetadata(field.metadata()).putString(KEY, "").build();
    return new StructField(field.name(), field.dataType(), field.nullable(), metadata);
  }
}
