package io.nyala.spark.tables;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.Json;
import io.nyala.spark.options.PythonSource;
import io.nyala.spark.options.TableProperties;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Transform;

/** A store's description of a table, as {@code SHOW CREATE TABLE} and {@code DESCRIBE EXTENDED} print it. */
public record TableDescription(JsonNode described) {
  public Transform[] partitioning() {
    return Partitioning.transforms(described.path("partitions"));
  }

  /** Returns the properties with which {@code CREATE TABLE} makes an equal table. */
  public Map<String, String> properties() {
    Map<String, String> found = new LinkedHashMap<>();
    found.put(TableCatalog.PROP_PROVIDER, PythonSource.FORMAT);
    described.path("options").properties().forEach(option -> found.put(option.getKey(), option.getValue().asText()));
    if (found.getOrDefault(TableCatalog.PROP_COMMENT, "").isEmpty()) {
      found.remove(TableCatalog.PROP_COMMENT);
    }
    found.put(TableProperties.PRIMARY_KEY, TableProperties.text(key()));
    if (!described.path("unique_key").asBoolean(true)) {
      found.put(TableProperties.UNIQUE_KEY, "false");
    }
    described.path("partitions").forEach(level -> {
      if (level.has(TableProperties.BOUNDS)) {
        found.put(TableProperties.BOUNDS, Json.of(level.get(TableProperties.BOUNDS)));
      }
    });
    described.path("columns").forEach(column -> putColumn(column, found));
    return found;
  }

  /** Returns the columns of the primary key. */
  public List<String> key() {
    List<String> key = new ArrayList<>();
    described.path("primary_key").forEach(column -> key.add(column.asText()));
    return key;
  }

  private static void putColumn(JsonNode column, Map<String, String> found) {
    String name = column.path("name").asText();
    found.put("encoding." + name, column.path("encoding").asText());
    if (!column.path("compression").asText("none").equals("none")) {
      found.put("compression." + name, column.path("compression").asText());
    }
    if (column.hasNonNull(TableProperties.BLOCK_ROWS)) {
      found.put(TableProperties.BLOCK_ROWS + "." + name, column.get(TableProperties.BLOCK_ROWS).asText());
    }
    if (column.path(TableProperties.IMMUTABLE).asBoolean()) {
      found.put(TableProperties.IMMUTABLE + "." + name, "true");
    }
    for (String part : List.of(TableProperties.TOO_LONG, TableProperties.DEFAULT_EXPRESSION, TableProperties.MERGE)) {
      if (column.hasNonNull(part)) {
        found.put(part + "." + name, column.get(part).asText());
      }
    }
    JsonNode before = column.path(TableProperties.READ_DEFAULT);
    if (!before.isMissingNode() && !before.isNull()) {
      found.put(TableProperties.READ_DEFAULT + "." + name, before.isValueNode() ? before.asText() : Json.of(before));
    }
  }
}
