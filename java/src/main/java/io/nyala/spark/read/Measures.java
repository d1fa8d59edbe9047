package io.nyala.spark.read;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.expressions.aggregate.Sum;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;

/**
 * Aggregates that the store computes instead of Spark, if the result is the same: of all rows in one row, by groups in
 * one row for a group if there are few, or else in several, which Spark combines.
 *
 * <p>Spark computes the others: minimum and maximum of numbers that may be NaN, which the store skips, and of times
 * without a zone, which may order differently from moments; sums that may overflow, and those of decimals that it would
 * combine, which it does in the narrow type of the cells; groups by floats and by times without a zone, of which several
 * moments may be one.
 */
record Measures(Map<String, List<String>> byName, List<String> groups, StructType schema) {
  /** Spark sums {@code decimal(p,s)} as {@code decimal(p+10,s)}: up to this precision, sums cannot overflow. */
  private static final int SUMMED_PRECISION_MAX = DecimalType.MAX_PRECISION() - 10;

  /** Returns the measures of an aggregation; empty if Spark must compute it. */
  static Optional<Measures> of(Aggregation aggregation, StructType schema) {
    if (aggregation.groupByExpressions().length + aggregation.aggregateExpressions().length == 0) {
      return Optional.empty();
    }
    List<String> groups = new ArrayList<>();
    StructType answer = new StructType();
    for (Expression expression : aggregation.groupByExpressions()) {
      Optional<String> group = column(expression, schema).filter(name -> isGroup(schema.apply(name).dataType()));
      if (group.isEmpty() || groups.contains(group.get())) { // an answer has each column once
        return Optional.empty();
      }
      groups.add(group.get());
      answer = answer.add(schema.apply(group.get()));
    }
    Map<String, List<String>> byName = new LinkedHashMap<>();
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      Optional<Measure> measure = measure(function, schema);
      if (measure.isEmpty()) {
        return Optional.empty();
      }
      String name = "_before_measure_" + byName.size(); // no column of a table begins so
      byName.put(name, List.of(measure.get().column, measure.get().function));
      answer = answer.add(name, measure.get().type, !measure.get().function.equals("count"));
    }
    return Optional.of(new Measures(byName, groups, answer));
  }

  /** Whether Spark can combine several rows for a group. */
  boolean canBeCombined() {
    return byName.keySet().stream().noneMatch(
        name -> byName.get(name).get(1).equals("sum") && schema.apply(name).dataType() instanceof DecimalType);
  }

  /** Returns what the plan of a query shows. */
  @Override
  public String toString() {
    return groups.isEmpty() ? byName.toString() : byName + ", by: " + String.join(", ", groups);
  }

  /** Whether equal values of a type in Spark are equal in the store, and the other way round. */
  static boolean isGroup(DataType type) {
    return isSmall(type) || type instanceof LongType || type instanceof BooleanType || type instanceof DateType
        || type instanceof TimestampType || type instanceof DecimalType || type instanceof BinaryType
        || type.equals(DataTypes.StringType);
  }

  private static Optional<Measure> measure(AggregateFunc function, StructType schema) {
    if (function instanceof CountStar) {
      return Optional.of(new Measure("*", "count", DataTypes.LongType));
    }
    if (function instanceof Count count && !count.isDistinct()) {
      return column(count.column(), schema).map(name -> new Measure(name, "count", DataTypes.LongType));
    }
    if (function instanceof Min min) {
      return column(min.column(), schema).flatMap(name -> bound(name, "min", schema));
    }
    if (function instanceof Max max) {
      return column(max.column(), schema).flatMap(name -> bound(name, "max", schema));
    }
    if (function instanceof Sum sum && !sum.isDistinct()) {
      return column(sum.column(), schema).flatMap(name -> sum(name, schema.apply(name).dataType()));
    }
    return Optional.empty();
  }

  private static Optional<Measure> bound(String name, String function, StructType schema) {
    DataType type = schema.apply(name).dataType();
    return isOrdered(type) ? Optional.of(new Measure(name, function, type)) : Optional.empty();
  }

  /** Whether the store orders all values of a type as Spark does. */
  static boolean isOrdered(DataType type) {
    return isSmall(type) || type instanceof LongType || type instanceof DateType || type instanceof TimestampType
        || type instanceof DecimalType || type.equals(DataTypes.StringType);
  }

  private static Optional<Measure> sum(String name, DataType type) {
    if (isSmall(type)) {
      return Optional.of(new Measure(name, "sum", DataTypes.LongType));
    }
    if (type instanceof FloatType || type instanceof DoubleType) {
      return Optional.of(new Measure(name, "sum", DataTypes.DoubleType));
    }
    if (type instanceof DecimalType decimal && decimal.precision() <= SUMMED_PRECISION_MAX) {
      DataType whole = DataTypes.createDecimalType(DecimalType.MAX_PRECISION(), decimal.scale());
      return Optional.of(new Measure(name, "sum", whole));
    }
    return Optional.empty();
  }

  private static boolean isSmall(DataType type) {
    return type instanceof ByteType || type instanceof ShortType || type instanceof IntegerType;
  }

  private static Optional<String> column(Expression expression, StructType schema) {
    if (!(expression instanceof NamedReference reference) || reference.fieldNames().length != 1) {
      return Optional.empty();
    }
    String name = reference.fieldNames()[0];
    return schema.getFieldIndex(name).isDefined() ? Optional.of(name) : Optional.empty();
  }

  private record Measure(String column, String function, DataType type) {}
}
