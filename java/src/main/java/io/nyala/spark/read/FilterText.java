package io.nyala.spark.read;

import io.nyala.spark.tables.StoreTable;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.UnaryOperator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimeType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Translates Spark's conditions into the store's SQL text (docs/filters.md), if both always select the same rows.
 *
 * <p>They differ in NaN: for Spark it equals itself and is greater than all numbers; for the store, as in IEEE 754,
 * all comparisons with it are false. So {@code x > 1} becomes {@code NOT x <= 1}, which is true for NaN, and false or
 * unknown where {@code x > 1} is. All other cells compare alike: numbers by value, strings and binary byte by byte,
 * NULL with three-valued logic.
 */
public final class FilterText {
  // Well below the store's limits for a filter (docs/filters.md): an optimization must not make a query fail.
  private static final int LENGTH_MAX = 2 << 20;
  private static final int DEPTH_MAX = 40;
  private static final int PARTS_MAX = 4_000;
  private static final int VALUES_MAX = 20_000;
  private static final Map<String, String> FLIPPED =
      Map.of("=", "=", "<=>", "<=>", "<>", "<>", "<", ">", "<=", ">=", ">", "<", ">=", "<=");
  /** The negated operators for comparisons of numbers that may be NaN. */
  private static final Map<String, String> BELOW_NAN = Map.of(">", "<=", ">=", "<");

  /** A string, or the name of a column. */
  private static final Pattern QUOTED = Pattern.compile("'[^']*'|\"((?:[^\"]|\"\")*)\"");

  private final StructType schema;
  private final FloatColumns floats;
  private int parts;
  private int length;

  public FilterText(StoreTable table) {
    this(table, table.schema());
  }

  /** Translates conditions on some columns of a table. */
  FilterText(StoreTable table, StructType columns) {
    this.schema = columns;
    this.floats = new FloatColumns(table);
  }

  /**
   * Returns the text of one more condition of a scan; empty if the store might select other rows with it, or reject
   * it.
   */
  public Optional<String> of(Predicate condition) {
    Optional<String> found = text(condition, 0);
    length += found.map(String::length).orElse(0);
    return found.filter(text -> length <= LENGTH_MAX);
  }

  private Optional<String> text(Expression condition, int depth) {
    if (++parts > PARTS_MAX || depth > DEPTH_MAX || !(condition instanceof Predicate predicate)) {
      return Optional.empty();
    }
    Expression[] of = predicate.children();
    String name = predicate.name();
    return switch (name) {
      case "AND", "OR" -> text(of[0], depth + 1)
          .flatMap(left -> text(of[1], depth + 1).map(right -> "(" + left + " " + name + " " + right + ")"));
      case "NOT" -> text(of[0], depth + 1).map(text -> "NOT (" + text + ")");
      case "ALWAYS_TRUE" -> Optional.of("TRUE");
      case "ALWAYS_FALSE" -> Optional.of("FALSE");
      case "IS_NULL" -> column(of[0]).map(column -> column.quoted() + " IS NULL");
      case "IS_NOT_NULL" -> column(of[0]).map(column -> column.quoted() + " IS NOT NULL");
      case "STARTS_WITH" -> like(of, "", "%");
      case "ENDS_WITH" -> like(of, "%", "");
      case "CONTAINS" -> like(of, "%", "%");
      case "IN" -> in(of);
      default -> FLIPPED.containsKey(name) ? comparison(name, of) : Optional.empty();
    };
  }

  private Optional<String> comparison(String operator, Expression[] of) {
    if (of[0] instanceof Literal && !(of[1] instanceof Literal)) {
      return comparison(FLIPPED.get(operator), new Expression[] {of[1], of[0]});
    }
    return column(of[0]).flatMap(column -> literal(of[1], column).map(value -> compared(column, operator, value)));
  }

  private static String compared(Column column, String operator, String value) {
    String name = column.quoted();
    if (operator.equals("<=>")) {
      return "(" + name + " = " + value + " AND " + name + " IS NOT NULL)"; // false, not unknown, for NULL
    }
    if (column.mayBeNaN() && BELOW_NAN.containsKey(operator)) {
      return "NOT (" + name + " " + BELOW_NAN.get(operator) + " " + value + ")";
    }
    return name + " " + operator + " " + value;
  }

  private Optional<String> in(Expression[] of) {
    Optional<Column> column = column(of[0]);
    if (column.isEmpty() || of.length < 2 || of.length > VALUES_MAX) {
      return Optional.empty();
    }
    List<String> values = new ArrayList<>();
    for (int place = 1; place < of.length; place++) {
      Optional<String> value = literal(of[place], column.get());
      if (value.isEmpty()) {
        return Optional.empty();
      }
      values.add(value.get());
    }
    return Optional.of(column.get().quoted() + " IN (" + String.join(", ", values) + ")");
  }

  private Optional<String> like(Expression[] of, String before, String after) {
    Optional<Column> column = column(of[0]).filter(found -> found.type.equals(DataTypes.StringType));
    if (column.isEmpty() || !(of[1] instanceof Literal<?> literal) || !(literal.value() instanceof UTF8String)) {
      return Optional.empty();
    }
    return string((UTF8String) literal.value())
        .map(text -> text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_"))
        .map(text -> column.get().quoted() + " LIKE " + quoted(before + text + after, '\''));
  }

  private Optional<Column> column(Expression expression) {
    if (!(expression instanceof NamedReference reference) || reference.fieldNames().length != 1) {
      return Optional.empty();
    }
    String name = reference.fieldNames()[0];
    boolean isThere = schema.getFieldIndex(name).isDefined();
    return isThere ? Optional.of(new Column(name, schema.apply(name).dataType())) : Optional.empty();
  }

  /**
   * Returns a literal in the store's SQL for a column; empty for NULL, NaN and infinity, and for what the store would
   * round to a cell of the column.
   */
  private Optional<String> literal(Expression expression, Column column) {
    if (!(expression instanceof Literal<?> literal) || literal.value() == null) {
      return Optional.empty();
    }
    Object value = literal.value();
    DataType type = column.type;
    if (value instanceof Decimal decimal && type instanceof DecimalType) {
      return Optional.of(decimal.toJavaBigDecimal().toPlainString());
    }
    if (!literal.dataType().equals(type) || isOfClock(type)) {
      return Optional.empty();
    }
    if (value instanceof UTF8String text) {
      return string(text).map(each -> quoted(each, '\''));
    }
    if (value instanceof Boolean flag) {
      return Optional.of(flag ? "TRUE" : "FALSE");
    }
    if (value instanceof Float number && !floats.keeps(column.name, number)) {
      return Optional.empty();
    }
    if (value instanceof Float || value instanceof Double) {
      double number = ((Number) value).doubleValue(); // exact, also for a float
      return Optional.of(number).filter(Double::isFinite).map(each -> BigDecimal.valueOf(each).toString());
    }
    if (type instanceof BinaryType) {
      return Optional.of("X'" + HexFormat.of().formatHex((byte[]) value) + "'");
    }
    // Integers; dates and timestamps are days and microseconds since 1970.
    boolean isSmall = value instanceof Byte || value instanceof Short;
    boolean isWhole = isSmall || value instanceof Integer || value instanceof Long;
    return isWhole ? Optional.of(value.toString()) : Optional.empty();
  }

  /**
   * Whether the values of a type depend on the session's zone, while the store compares moments only, or have in Spark
   * another unit than in the column.
   */
  private static boolean isOfClock(DataType type) {
    return type instanceof TimestampNTZType || type instanceof TimeType || type instanceof DayTimeIntervalType;
  }

  /** Returns a text unless it has bytes that are not UTF-8, which Spark allows but which would not survive. */
  private static Optional<String> string(UTF8String text) {
    return Optional.of(text.toString()).filter(same -> UTF8String.fromString(same).equals(text));
  }

  /** Returns a text of this class with other names of columns. */
  static String renamed(String text, UnaryOperator<String> names) {
    return QUOTED.matcher(text).replaceAll(found -> {
      String name = found.group(1);
      return Matcher.quoteReplacement(
          name == null ? found.group() : quoted(names.apply(name.replace("\"\"", "\"")), '"'));
    });
  }

  private static String quoted(String text, char quote) {
    return quote + text.replace(String.valueOf(quote), String.valueOf(quote).repeat(2)) + quote;
  }

  private record Column(String name, DataType type) {
    String quoted() {
      return FilterText.quoted(name, '"');
    }

    boolean mayBeNaN() {
      return type instanceof FloatType || type instanceof DoubleType;
    }
  }
}
