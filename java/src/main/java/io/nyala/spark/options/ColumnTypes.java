package io.nyala.spark.options;

import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DayTimeIntervalType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimeType;
import org.apache.spark.sql.types.VarcharType;
import org.apache.spark.sql.util.ArrowUtils;

/** The types of columns: the store's words for them, and Spark's. */
public final class ColumnTypes {
  private static final DataType UNSIGNED = new DecimalType(20, 0);
  private static final DataType TIME = new TimeType(6);
  private static final DataType SPAN = DataTypes.createDayTimeIntervalType();
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

  /** Those of columns that have cells for which Spark has no type of its own. */
  private static final Map<String, DataType> HOLDERS = Map.ofEntries(
      Map.entry("json", DataTypes.StringType),
      Map.entry("uint8", DataTypes.ShortType),
      Map.entry("uint16", DataTypes.IntegerType),
      Map.entry("uint32", DataTypes.LongType),
      Map.entry("uint64", UNSIGNED),
      Map.entry("float16", DataTypes.FloatType),
      Map.entry("time32[s]", TIME),
      Map.entry("time32[ms]", TIME),
      Map.entry("time64[us]", TIME),
      Map.entry("time64[ns]", TIME),
      Map.entry("duration[s]", SPAN),
      Map.entry("duration[ms]", SPAN),
      Map.entry("duration[us]", SPAN),
      Map.entry("duration[ns]", SPAN));

  private ColumnTypes() {}

  /**
   * Returns Spark's type of a column, all of whose cells are strings if it is a {@code varchar(n)}. Throws an
   * IllegalArgumentException if it has none.
   */
  public static DataType of(String word) {
    if (NestedTypes.isNested(word)) {
      return NestedTypes.of(word);
    }
    String name = word.replaceAll("\\(.*", "");
    if (!name.equals("decimal")) {
      DataType type = TYPES.getOrDefault(name, HOLDERS.get(name));
      if (type == null) {
        throw new IllegalArgumentException(
            "Spark has no type for a column of " + word + ": leave it out with the option columns");
      }
      return type;
    }
    String[] digits = word.substring(name.length() + 1, word.length() - 1).split(",");
    return new DecimalType(Integer.parseInt(digits[0].strip()), Integer.parseInt(digits[1].strip()));
  }

  /** Returns Spark's type of a column of a scan, whose timestamps are moments. */
  public static DataType of(Field field) {
    ArrowType type = field.getType();
    if (type instanceof ArrowType.Timestamp) {
      return DataTypes.TimestampType;
    }
    if (type instanceof ArrowType.Time) {
      return TIME;
    }
    if (type instanceof ArrowType.Duration) {
      return SPAN;
    }
    if (type instanceof ArrowType.Int number && !number.getIsSigned()) {
      return HOLDERS.get("uint" + number.getBitWidth());
    }
    if (type instanceof ArrowType.FloatingPoint real && real.getPrecision() == FloatingPointPrecision.HALF) {
      return DataTypes.FloatType;
    }
    return type.isComplex() ? nested(field) : ArrowUtils.fromArrowType(type);
  }

  private static DataType nested(Field field) {
    List<Field> parts = field.getChildren();
    if (field.getType() instanceof ArrowType.Map) {
      List<Field> pair = parts.get(0).getChildren();
      return DataTypes.createMapType(of(pair.get(0)), of(pair.get(1)));
    }
    if (field.getType() instanceof ArrowType.Struct) {
      return new StructType(parts.stream()
          .map(each -> new StructField(each.getName(), of(each), true, Metadata.empty()))
          .toArray(StructField[]::new));
    }
    return DataTypes.createArrayType(of(parts.get(0)));
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
    if (type instanceof TimeType) {
      return "time64[us]";
    }
    if (type instanceof DayTimeIntervalType) {
      return "duration[us]";
    }
    if (type instanceof ArrayType list) {
      return "list<" + word(column, list.elementType()) + ">";
    }
    if (type instanceof MapType map) {
      return "map<" + word(column, map.keyType()) + ", " + word(column, map.valueType()) + ">";
    }
    if (type instanceof StructType struct) {
      return NestedTypes.struct(struct, each -> word(column, each));
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
