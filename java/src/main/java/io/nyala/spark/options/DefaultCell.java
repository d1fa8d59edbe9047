package io.nyala.spark.options;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Locale;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.parser.CatalystSqlParser$;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.catalyst.util.ResolveDefaultColumns;
import org.apache.spark.sql.connector.catalog.DefaultValue;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.LogicalExpressions;
import org.apache.spark.sql.types.DataType;

/** A column default. The store has constants, so any other expression is rejected. */
public final class DefaultCell {
  /** Beside those whose names begin with {@code current_}. All others that vary, Spark rejects itself. */
  private static final Set<String> VARYING =
      Set.of("now", "localtimestamp", "curdate", "user", "session_user", "unix_timestamp");

  private DefaultCell() {}

  /** Returns the JSON of a default of a column of this type. */
  public static JsonNode of(String column, DataType type, DefaultValue given) {
    if (given.getExpression() instanceof Literal<?> constant) {
      return CellJson.of(constant);
    }
    String sql = given.getSql();
    Expression parsed = CatalystSqlParser$.MODULE$.parseExpression(sql);
    if (parsed.exists(DefaultCell::varies)) {
      throw new IllegalArgumentException(
          "the default of column '" + column + "' is " + sql + ": a default must be a constant");
    }
    Object value = ResolveDefaultColumns.analyze(column, type, sql, "DEFAULT").eval(null);
    return CellJson.of(LogicalExpressions.literal(value, type));
  }

  private static boolean varies(Expression part) {
    if (!(part instanceof UnresolvedFunction function)) {
      // A name can only be a function without parentheses, and these all vary.
      return part instanceof UnresolvedAttribute || part.containsPattern(TreePattern.CURRENT_LIKE());
    }
    String name = function.nameParts().last().toLowerCase(Locale.ROOT);
    return name.startsWith("current_") || VARYING.contains(name) && function.arguments().isEmpty();
  }
}
