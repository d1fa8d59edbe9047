package io.nyala.spark.read;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.NullOrdering;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;

/**
 * The first rows in an order, which the store finds, and Spark puts in order once more; or, without any terms, some rows,
 * whichever are found first.
 */
record FirstRows(List<Term> order, int limit) {
  private static final int LIMIT_MAX = 100_000; // more are read by several tasks

  record Term(String column, boolean isDescending, boolean hasNullsFirst) {
    @Override
    public String toString() {
      return column + (isDescending ? " DESC" : "") + (hasNullsFirst ? " NULLS FIRST" : "");
    }
  }

  /** Returns the first rows; empty if Spark might order them differently: it counts NaN as a number, and has clocks. */
  static Optional<FirstRows> of(SortOrder[] orders, int limit, StructType schema) {
    List<Term> terms = new ArrayList<>();
    for (SortOrder order : orders) {
      if (!(order.expression() instanceof NamedReference reference) || reference.fieldNames().length != 1) {
        return Optional.empty();
      }
      String name = reference.fieldNames()[0];
      boolean isNew = terms.stream().noneMatch(term -> term.column.equals(name));
      if (schema.getFieldIndex(name).isEmpty() || !isOrderedAlike(schema.apply(name).dataType()) || !isNew) {
        return Optional.empty();
      }
      boolean isDescending = order.direction() == SortDirection.DESCENDING;
      terms.add(new Term(name, isDescending, order.nullOrdering() == NullOrdering.NULLS_FIRST));
    }
    return limit <= LIMIT_MAX ? Optional.of(new FirstRows(terms, limit)) : Optional.empty();
  }

  /** Returns some rows; empty if they are so many that several tasks should read them. */
  static Optional<FirstRows> of(int limit) {
    return limit <= LIMIT_MAX ? Optional.of(new FirstRows(List.of(), limit)) : Optional.empty();
  }

  /** Returns what the plan of a query shows. */
  @Override
  public String toString() {
    return order.isEmpty() ? String.valueOf(limit) : limit + " by " + order;
  }

  /** Asks for these rows. */
  void putInto(ObjectNode scan) {
    scan.put("limit", limit);
    if (order.isEmpty()) {
      return;
    }
    ArrayNode terms = scan.putArray("order_by");
    for (Term term : order) {
      terms.addObject()
          .put("column", term.column)
          .put("descending", term.isDescending)
          .put("nulls", term.hasNullsFirst ? "first" : "last");
    }
  }

  private static boolean isOrderedAlike(DataType type) {
    boolean isPlain = !(type instanceof StringType) || type.equals(DataTypes.StringType);
    boolean isNested = type instanceof ArrayType || type instanceof MapType || type instanceof StructType;
    return isPlain
        && !isNested // the store does not sort by these
        && !(type instanceof FloatType || type instanceof DoubleType || type instanceof TimestampNTZType);
  }
}
