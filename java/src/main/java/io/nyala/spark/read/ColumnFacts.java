package io.nyala.spark.read;

import io.nyala.spark.options.ColumnNames;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * A column's facts for Spark's cost-based optimizer: its ends and its NULLs, which the store has in zone maps, and its
 * distinct cells if it is a key alone. Empty: not known.
 */
record ColumnFacts(Optional<Object> min, Optional<Object> max, OptionalLong nullCount, OptionalLong distinctCount)
    implements ColumnStatistics {
  private static final String ROWS = "_rows";

  /** Returns the measures that tell of columns. */
  static Measures measures(StructType columns) {
    Map<String, List<String>> asked = new LinkedHashMap<>();
    StructType answer = new StructType().add(ROWS, DataTypes.LongType, false);
    asked.put(ROWS, List.of("*", "count"));
    for (int place = 0; place < columns.length(); place++) {
      StructField column = columns.apply(place);
      asked.put("_count_" + place, List.of(column.name(), "count"));
      answer = answer.add("_count_" + place, DataTypes.LongType, false);
      if (hasEnds(column.dataType())) {
        asked.put("_min_" + place, List.of(column.name(), "min"));
        asked.put("_max_" + place, List.of(column.name(), "max"));
        answer = answer.add("_min_" + place, column.dataType()).add("_max_" + place, column.dataType());
      }
    }
    return new Measures(asked, List.of(), answer);
  }

  /** Returns what the row of the measures says. {@code isFiltered}: it tells of rows that the scan leaves out, too. */
  static Map<NamedReference, ColumnStatistics> of(
      StructType columns, List<String> key, InternalRow row, boolean isFiltered) {
    StructType answer = measures(columns).schema();
    Map<NamedReference, ColumnStatistics> found = new HashMap<>();
    long rows = row.getLong(0);
    for (int place = 0; place < columns.length(); place++) {
      StructField column = columns.apply(place);
      long cells = row.getLong(answer.fieldIndex("_count_" + place));
      Function<String, Optional<Object>> end = name -> end(row, answer, name);
      boolean isKey = key.equals(List.of(column.name()));
      found.put(ColumnNames.reference(column.name()), new ColumnFacts(
          end.apply("_min_" + place), end.apply("_max_" + place),
          isFiltered ? OptionalLong.empty() : OptionalLong.of(rows - cells),
          isKey && !isFiltered ? OptionalLong.of(rows) : OptionalLong.empty()));
    }
    return found;
  }

  private static Optional<Object> end(InternalRow row, StructType answer, String name) {
    if (answer.getFieldIndex(name).isEmpty()) {
      return Optional.empty();
    }
    int place = answer.fieldIndex(name);
    Object cell = row.isNullAt(place) ? null : row.get(place, answer.apply(place).dataType());
    boolean isNan = cell instanceof Double number && number.isNaN() || cell instanceof Float less && less.isNaN();
    return isNan ? Optional.empty() : Optional.ofNullable(cell);
  }

  /** Spark compares ends of numbers and times; of text it has no use for them. */
  private static boolean hasEnds(DataType type) {
    boolean isFloat = type instanceof FloatType || type instanceof DoubleType;
    return isFloat || Measures.isOrdered(type) && !(type instanceof StringType);
  }
}
