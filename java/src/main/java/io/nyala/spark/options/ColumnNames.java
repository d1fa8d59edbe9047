package io.nyala.spark.options;

import java.util.List;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.internal.SQLConf;

/** The names of columns, as a session compares them and as Spark's expressions have them. */
public final class ColumnNames {
  public static final String BEFORE = "_before_"; // the prefix of the columns with previous values

  private ColumnNames() {}

  /** Returns the known name that a name means. Throws an IllegalArgumentException if there is none, or several. */
  public static String known(String name, List<String> known) {
    String found = same(name, known);
    if (known.contains(found)) {
      return found;
    }
    String some = String.join(", ", known.subList(0, Math.min(known.size(), 20)));
    throw new IllegalArgumentException("the table has no column '" + name + "'; it has " + some);
  }

  /** Returns the known name that differs only in case, if the session does not tell cases apart; else the name itself. */
  public static String same(String name, List<String> known) {
    if (known.contains(name) || SQLConf.get().caseSensitiveAnalysis()) {
      return name;
    }
    List<String> alike = known.stream().filter(name::equalsIgnoreCase).toList();
    if (alike.size() > 1) {
      throw new IllegalArgumentException(
          "column '" + name + "' is ambiguous: write '" + String.join("' or '", alike) + "'");
    }
    return alike.isEmpty() ? name : alike.get(0);
  }

  /** Returns a column for Spark to find, whatever is in its name. */
  public static NamedReference reference(String column) {
    return Expressions.column("`" + column.replace("`", "``") + "`");
  }
}
