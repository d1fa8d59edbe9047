package io.nyala.spark.tables;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.Json;
import io.nyala.spark.options.ColumnNames;
import io.nyala.spark.options.ColumnTypes;
import io.nyala.spark.options.DefaultCell;
import io.nyala.spark.options.TableProperties;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.ColumnDefaultValue;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;
import org.apache.spark.sql.connector.catalog.constraints.PrimaryKey;

/**
 * {@code CREATE TABLE} as the definition that the store takes (docs/flight.md, Creating a table). The store checks it;
 * here is only checked what it would never see.
 */
public final class TableDefinition {
  /** The column that completes the key of a table whose primary key is not unique: the store adds it. */
  private static final String AUTO_INCREMENTING = "auto_incrementing_id";

  private final Map<String, ObjectNode> columns = new LinkedHashMap<>();
  private final ObjectNode body = Json.object();

  private TableDefinition(String name) {
    body.put("name", name);
  }

  /** Returns the definition of a table that a statement describes. */
  public static ObjectNode of(String name, TableInfo info) {
    TableDefinition made = new TableDefinition(name);
    for (Column column : info.columns()) {
      made.columns.put(column.name(), column(column));
    }
    Map<String, String> properties = info.properties();
    made.putProperties(properties);
    List<String> key = made.key(properties, info.constraints());
    made.body.set("partition_by", Partitioning.levels(info.partitions(), properties, made.types()));
    made.putColumns(key);
    return made.body;
  }

  /** Returns the definition of a table like one of a store, with properties of its own. */
  public static ObjectNode like(String name, TableInfo info, Table source) {
    TableDescription about = source instanceof StoreTable table ? table.about() : null;
    if (about == null) {
      throw new UnsupportedOperationException(
          "CREATE TABLE ... LIKE " + source.name() + ", which is not a table of a store: use CREATE TABLE, with a key");
    }
    JsonNode described = about.described();
    Map<String, String> properties = info.properties();
    TableDefinition made = new TableDefinition(name);
    for (JsonNode column : described.path("columns")) {
      ObjectNode copy = column.deepCopy();
      copy.remove("id");
      made.columns.put(column.path("name").asText(), copy);
    }
    List<String> key = new ArrayList<>();
    described.path("primary_key").forEach(column -> key.add(column.asText()));
    made.body.set("unique_key", described.path("unique_key"));
    made.body.set("options", described.path("options").deepCopy());
    if (properties.keySet().stream().anyMatch(TableProperties::isOfKey)) {
      throw new IllegalArgumentException("LIKE copies the key and the partitions: use CREATE TABLE for others");
    }
    made.putProperties(properties);
    made.body.set("partition_by", described.path("partitions"));
    made.putColumns(key);
    return made.body;
  }

  /** Returns a column of a new table, or one that is added to a table. */
  static ObjectNode column(Column column) {
    ObjectNode made = Json.object();
    made.put("name", column.name());
    made.put("type", ColumnTypes.word(column.name(), column.dataType()));
    made.put("nullable", column.nullable());
    if (column.comment() != null) {
      made.put("comment", column.comment());
    }
    ColumnDefaultValue given = column.defaultValue();
    if (given != null) {
      made.set("write_default", DefaultCell.of(column.name(), column.dataType(), given));
    }
    return made;
  }

  private List<String> key(Map<String, String> properties, Constraint[] constraints) {
    String given = properties.get(TableProperties.PRIMARY_KEY);
    List<String> found = given == null ? new ArrayList<>() : TableProperties.names(given);
    for (Constraint constraint : constraints) {
      if (!(constraint instanceof PrimaryKey primary) || !found.isEmpty()) {
        throw new IllegalArgumentException(
            constraint.toDDL() + ": a table has one PRIMARY KEY, and no other constraint");
      }
      Stream.of(primary.columns()).forEach(column -> found.add(String.join(".", column.fieldNames())));
    }
    if (found.isEmpty()) {
      throw new IllegalArgumentException("table " + body.path("name").asText() + " needs a primary key, as in "
          + "PRIMARY KEY (id) among its columns, TBLPROPERTIES ('primary_key' = 'id'), or "
          + "df.writeTo(...).tableProperty('primary_key', 'id')");
    }
    List<String> known = List.copyOf(columns.keySet());
    return found.stream().map(name -> ColumnNames.known(name, known)).toList();
  }

  private void putProperties(Map<String, String> properties) {
    properties.keySet().stream().filter(name -> name.startsWith(TableCatalog.OPTION_PREFIX)).findFirst()
        .ifPresent(name -> TableProperties.isOfSpark(name, "")); // before those that it is also given as
    ObjectNode options = body.has("options") ? (ObjectNode) body.get("options") : body.putObject("options");
    properties.forEach((name, text) -> {
      if (name.equals(TableCatalog.PROP_COMMENT)) {
        options.put("comment", text);
      } else if (name.equals(TableProperties.UNIQUE_KEY)) {
        body.set(name, TableProperties.value(name, text, ""));
      } else if (TableProperties.isOption(name)) {
        options.set(name, TableProperties.value(name, text, ""));
      } else if (!TableProperties.isOfKey(name) && !TableProperties.isOfSpark(name, text)) {
        putOfColumn(TableProperties.ofColumn(name), text);
      }
    });
  }

  private void putOfColumn(TableProperties.OfColumn property, String text) {
    ObjectNode column = columns.get(ColumnNames.known(property.column(), List.copyOf(columns.keySet())));
    column.set(property.part(), TableProperties.value(property.part(), text, column.path("type").asText()));
  }

  private Map<String, String> types() {
    Map<String, String> found = new LinkedHashMap<>();
    columns.forEach((name, column) -> found.put(name, column.path("type").asText()));
    return found;
  }

  /** Key columns come first, in the order of the key, and are NOT NULL. */
  private void putColumns(List<String> key) {
    key.forEach(name -> columns.get(name).put("nullable", false));
    Comparator<String> byKey = Comparator.comparingInt(name -> key.contains(name) ? key.indexOf(name) : key.size());
    body.set("primary_key", Json.tree(key.stream().filter(this::isGiven).toList()));
    ArrayNode ordered = body.putArray("columns");
    columns.keySet().stream().sorted(byKey).filter(this::isGiven).forEach(name -> ordered.add(columns.get(name)));
  }

  private boolean isGiven(String column) {
    return body.path("unique_key").asBoolean(true) || !column.equals(AUTO_INCREMENTING);
  }
}
