package io.nyala.spark.options;

import java.util.Map;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.VarcharType;
import org.apache.spark.sql.util.ArrowUtils;

/** The types of columns: the store's words for them, and Spark's. */
public final class ColumnTypes {
  private static final Map<String, DataType> TYPES = Map.ofEntries(
      Map.entry("bool", DataTypes.BooleanType),
      Map.entry("int8", DataTypes.ByteType),
      Map.entry("int16", DataTypes.ShortType),
      Map.entry("int32", DataTypes.IntegerType),
      Map.entry("int64", DataTypes.LongType),
      Map.entry("date", DataTypes.DateType),
      Map.entry("timestamp[us]", DataTypes.TimestampType),
      Map.entry("float", DataTypes.FloatType),
      Map.entry("double", DataTypes.DoubleType),
      Map.entry("string", DataTypes.StringType),
      Map.entry("varchar", DataTypes.StringType),
      Map.entry("binary", DataTypes.BinaryType));

  private ColumnTypes() {}

  /** Returns Spark's type of a column, all of whose cells are strings if it is a {@code varchar(n)}. */
  public static DataType of(String word) {
    String name = word.replaceAll("\\(.*", "");
    if (!name.equals("decimal")) {
      return TYPES.get(name);
    }
    String[] digits = word.substring(name.length() + 1, word.length() - 1).split(",");
    return new DecimalType(Integer.parseInt(digits[0].strip()), Integer.parseInt(digits[1].strip()));
  }

  /** Returns Spark's type of a column of a scan, whose timestamps are moments. */
  public static DataType of(Field field) {
    boolean isMoment = field.getType() instanceof ArrowType.Timestamp;
    return isMoment ? DataTypes.TimestampType : ArrowUtils.fromArrowType(field.getType());
  }

  public static boolean isVarchar(String word) {
    return word.startsWith("varchar");
  }

  /** Returns the store's word for the type of a column. Throws an IllegalArgumentException if it has none. */
  public static String word(String column, DataType type) {
    if (type instanceof DecimalType decimal) {
      return "decimal(" + decimal.precision() + "," + decimal.scale() + ")";
    }
    if (type instanceof VarcharType varchar) {
      return "varchar(" + varchar.length() + ")";
    }
    for (Map.Entry<String, DataType> each : TYPES.entrySet()) {
      if (each.getValue().equals(type) && !each.getKey().equals("varchar")) {
        return each.getKey();
      }
    }
    throw new IllegalArgumentException(
        "column '" + column + "' is " + type.sql() + ", which a table cannot hold; " + instead(type));
  }

  private static String instead(DataType type) {
    if (type.equals(DataTypes.TimestampNTZType)) {
      return "a table stores moments in UTC: use TIMESTAMP";
    }
    return type instanceof StringType ? "use STRING or VARCHAR(n)" : "use STRING, for example with to_json()";
  }
}
