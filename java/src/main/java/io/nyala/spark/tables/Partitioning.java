package io.nyala.spark.tables;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.Json;
import io.nyala.spark.options.CellJson;
import io.nyala.spark.options.ColumnNames;
import io.nyala.spark.options.TableProperties;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.BucketTransform;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;

/**
 * The levels of {@code PARTITIONED BY}: {@code bucket(4, id)}; {@code hash(id, 4, 7)}, which has a seed; and
 * {@code range(day)}, whose ranges are the properties {@code bounds} and {@code splits}.
 */
public final class Partitioning {
  private static final String HASH = "hash";
  private static final String RANGE = "range";
  private static final String BETWEEN_ENDS = "..";

  private Partitioning() {}

  /** Returns a table's levels as {@code partition_by} has them. {@code types} are those of the columns. */
  static ArrayNode levels(Transform[] transforms, Map<String, String> properties, Map<String, String> types) {
    ArrayNode levels = (ArrayNode) Json.tree(List.of());
    boolean hasRanges = false;
    for (Transform transform : transforms) {
      List<String> columns = columns(transform, types);
      List<Long> numbers = numbers(transform);
      ObjectNode level = levels.addObject();
      if (transform.name().equals(RANGE) && numbers.isEmpty() && !columns.isEmpty()) {
        hasRanges = true;
        level.set(RANGE, Json.tree(columns));
        putRanges(level, columns.stream().map(types::get).toList(), properties);
      } else if (transform instanceof BucketTransform && numbers.size() == 1) {
        putHash(level, columns, numbers.get(0), 0);
      } else if (transform.name().equals(HASH) && numbers.size() == 2) {
        putHash(level, columns, numbers.get(0), numbers.get(1));
      } else {
        throw new IllegalArgumentException("PARTITIONED BY " + transform.describe()
            + ": a table is divided by bucket(number, columns), hash(columns, number, seed) and range(columns)");
      }
    }
    boolean isOfRanges =
        properties.containsKey(TableProperties.BOUNDS) || properties.containsKey(TableProperties.SPLITS);
    if (isOfRanges && !hasRanges) {
      throw new IllegalArgumentException("bounds and splits need PARTITIONED BY (range(columns))");
    }
    return levels;
  }

  /** Returns what {@code PARTITIONED BY} says of a table as the store describes it. */
  static Transform[] transforms(JsonNode levels) {
    List<Transform> found = new ArrayList<>();
    for (JsonNode level : levels) {
      String[] columns = Stream.of(strings(level.path(level.has(RANGE) ? RANGE : HASH)))
          .map(name -> "`" + name.replace("`", "``") + "`").toArray(String[]::new);
      Expression[] references = Stream.of(columns).map(Expressions::column).toArray(Expression[]::new);
      int buckets = level.path("buckets").asInt();
      int seed = level.path("seed").asInt();
      if (level.has(RANGE)) {
        found.add(Expressions.apply(RANGE, references));
      } else if (seed == 0) {
        found.add(Expressions.bucket(buckets, columns));
      } else {
        Stream<Expression> numbers = Stream.of(Expressions.literal(buckets), Expressions.literal(seed));
        found.add(Expressions.apply(HASH, Stream.concat(Stream.of(references), numbers).toArray(Expression[]::new)));
      }
    }
    return found.toArray(Transform[]::new);
  }

  /** Returns an end of a range as text: the value, of several columns JSON; null for no bound. */
  public static String end(JsonNode values) {
    if (values.isEmpty()) {
      return null;
    }
    return values.size() == 1 && values.get(0).isValueNode() ? values.get(0).asText() : Json.of(values);
  }

  /** Returns a range as text, as {@code bounds} has it. */
  public static String range(JsonNode lower, JsonNode upper) {
    String low = end(lower);
    String high = end(upper);
    return (low == null ? "" : low) + BETWEEN_ENDS + (high == null ? "" : high);
  }

  /** Returns the types of the range columns of a table; of one without ranges, those of its key. */
  public static List<String> rangeTypes(JsonNode described) {
    JsonNode names = described.path("primary_key");
    for (JsonNode level : described.path("partitions")) {
      names = level.has(RANGE) ? level.get(RANGE) : names;
    }
    Map<String, String> types = new HashMap<>();
    described.path("columns").forEach(column ->
        types.put(column.path("name").asText(), column.path("type").asText()));
    return Stream.of(strings(names)).map(types::get).toList();
  }

  /** Returns an end of a range, or a value of its columns, of a text: the first value, or a JSON list of several. */
  public static JsonNode values(String text, List<String> types, String what) {
    if (text == null || text.isBlank()) {
      return Json.tree(null);
    }
    return isJson(text)
        ? TableProperties.json(what, text) : Json.tree(List.of(CellJson.of(text.strip(), types.get(0))));
  }

  private static void putHash(ObjectNode level, List<String> columns, long buckets, long seed) {
    level.set(HASH, Json.tree(columns));
    level.put("buckets", buckets).put("seed", seed);
  }

  private static void putRanges(ObjectNode level, List<String> types, Map<String, String> properties) {
    String bounds = properties.get(TableProperties.BOUNDS);
    String splits = properties.get(TableProperties.SPLITS);
    if (bounds != null) {
      level.set(TableProperties.BOUNDS, isJson(bounds) ? jsonBounds(bounds) : textBounds(bounds, types));
    }
    if (splits != null) {
      ArrayNode found = level.putArray(TableProperties.SPLITS);
      if (isJson(splits)) {
        TableProperties.json(TableProperties.SPLITS, splits).forEach(each -> found.add(row(each)));
      } else {
        Stream.of(splits.split(",")).forEach(each -> found.add(row(each, types, TableProperties.SPLITS)));
      }
    }
  }

  private static ArrayNode jsonBounds(String text) {
    ArrayNode found = (ArrayNode) Json.tree(List.of());
    for (JsonNode bound : TableProperties.json(TableProperties.BOUNDS, text)) {
      if (bound.isArray() && bound.size() == 2) {
        found.addObject().<ObjectNode>set("lower", row(bound.get(0))).set("upper", row(bound.get(1)));
      } else {
        found.add(bound);
      }
    }
    return found;
  }

  private static ArrayNode textBounds(String text, List<String> types) {
    ArrayNode found = (ArrayNode) Json.tree(List.of());
    for (String bound : text.split(",")) {
      int mark = bound.indexOf(BETWEEN_ENDS);
      if (mark < 0) {
        throw new IllegalArgumentException("bounds '" + text + "': '" + bound.strip()
            + "' is not of the form lower..upper; leave out an end for no bound");
      }
      found.addObject()
          .<ObjectNode>set("lower", row(bound.substring(0, mark), types, TableProperties.BOUNDS))
          .set("upper", row(bound.substring(mark + BETWEEN_ENDS.length()), types, TableProperties.BOUNDS));
    }
    return found;
  }

  /** Returns an end as a list of values, or null for no bound. */
  private static JsonNode row(JsonNode end) {
    return end.isArray() || end.isNull() ? end : Json.tree(List.of(end));
  }

  private static JsonNode row(String text, List<String> types, String property) {
    if (types.size() > 1) {
      throw new IllegalArgumentException(
          "ranges of several columns need " + property + " in JSON, as in [[[1, \"a\"], [2]], [[2], null]]");
    }
    return text.isBlank() ? Json.tree(null) : Json.tree(List.of(CellJson.of(text.strip(), types.get(0))));
  }

  private static boolean isJson(String text) {
    return text.stripLeading().startsWith("[");
  }

  private static List<String> columns(Transform transform, Map<String, String> types) {
    List<String> known = List.copyOf(types.keySet());
    return Stream.of(transform.arguments())
        .filter(NamedReference.class::isInstance)
        .map(each -> ColumnNames.known(String.join(".", ((NamedReference) each).fieldNames()), known))
        .toList();
  }

  private static List<Long> numbers(Transform transform) {
    return Stream.of(transform.arguments())
        .filter(each -> each instanceof Literal<?> literal && literal.value() instanceof Number)
        .map(each -> ((Number) ((Literal<?>) each).value()).longValue())
        .toList();
  }

  private static String[] strings(JsonNode list) {
    List<String> found = new ArrayList<>();
    list.forEach(each -> found.add(each.asText()));
    return found.toArray(String[]::new);
  }
}
