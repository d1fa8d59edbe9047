package io.nyala.spark.options;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The store's words for nested types: {@code list<T>}, {@code struct<name: T, ...>}, {@code map<K, V>}. */
final class NestedTypes {
  private NestedTypes() {}

  static boolean isNested(String word) {
    return word.indexOf('<') > 0;
  }

  /** Returns Spark's type. The store wrote the word, so that it is in its own form. */
  static DataType of(String word) {
    int open = word.indexOf('<');
    List<String> parts = parts(word.substring(open + 1, word.lastIndexOf('>')));
    return switch (word.substring(0, open)) {
      case "struct" -> new StructType(parts.stream().map(NestedTypes::field).toArray(StructField[]::new));
      case "map" -> DataTypes.createMapType(ColumnTypes.of(parts.get(0)), ColumnTypes.of(parts.get(1)));
      default -> DataTypes.createArrayType(ColumnTypes.of(parts.get(0)));
    };
  }

  private static StructField field(String part) {
    int end = part.indexOf(':');
    String name = part.substring(0, Math.max(end, 0));
    if (part.startsWith("\"")) {
      end = 1;
      while (part.charAt(end) != '"' || part.charAt(end + 1) == '"') {
        end += part.charAt(end) == '"' ? 2 : 1;
      }
      name = part.substring(1, end).replace("\"\"", "\"");
      end++;
    }
    return new StructField(name, ColumnTypes.of(part.substring(end + 1).strip()), true, Metadata.empty());
  }

  /** Returns the pieces between the commas that are outside of brackets and quotes. */
  private static List<String> parts(String inner) {
    List<String> parts = new ArrayList<>();
    int depth = 0;
    int first = 0;
    boolean isQuoted = false;
    for (int place = 0; place < inner.length(); place++) {
      char letter = inner.charAt(place);
      isQuoted ^= letter == '"';
      if (isQuoted) {
        continue;
      }
      depth += "<([".indexOf(letter) >= 0 ? 1 : ">)]".indexOf(letter) >= 0 ? -1 : 0;
      if (letter == ',' && depth == 0) {
        parts.add(inner.substring(first, place).strip());
        first = place + 1;
      }
    }
    parts.add(inner.substring(first).strip());
    return parts;
  }

  static String struct(StructType struct, Function<DataType, String> word) {
    return Arrays.stream(struct.fields())
        .map(each -> "\"" + each.name().replace("\"", "\"\"") + "\": " + word.apply(each.dataType()))
        .collect(Collectors.joining(", ", "struct<", ">"));
  }
}
