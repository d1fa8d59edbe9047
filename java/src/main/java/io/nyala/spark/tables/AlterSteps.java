package io.nyala.spark.tables;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.Json;
import io.nyala.spark.options.ColumnNames;
import io.nyala.spark.options.ColumnTypes;
import io.nyala.spark.options.DefaultCell;
import io.nyala.spark.options.TableProperties;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.DefaultValue;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;

/** {@code ALTER TABLE} as the steps that the store takes, all or none (docs/alter.md). */
final class AlterSteps {
  private final ArrayNode steps = (ArrayNode) Json.tree(List.of());
  /** The types of the columns, by their names. */
  private final Map<String, String> types = new LinkedHashMap<>();

  private AlterSteps() {}

  /** Returns the steps of one statement on a table that the store describes. */
  static ArrayNode of(JsonNode described, TableChange... changes) {
    AlterSteps made = new AlterSteps();
    described.path("columns").forEach(column ->
        made.types.put(column.path("name").asText(), column.path("type").asText()));
    for (TableChange change : changes) {
      made.put(change);
    }
    return made.steps;
  }

  private void put(TableChange change) {
    if (change instanceof TableChange.AddColumn add) {
      putColumn(add);
    } else if (change instanceof TableChange.DeleteColumn delete) {
      step("drop_column", delete.fieldNames());
    } else if (change instanceof TableChange.RenameColumn rename) {
      step("rename_column", rename.fieldNames()).put("to", rename.newName());
    } else if (change instanceof TableChange.UpdateColumnType update) {
      String name = name(update.fieldNames());
      step("widen_column", update.fieldNames()).put("type", ColumnTypes.word(name, update.newDataType()));
    } else if (change instanceof TableChange.UpdateColumnNullability update && update.nullable()) {
      step("drop_not_null", update.fieldNames());
    } else if (change instanceof TableChange.UpdateColumnComment update) {
      String comment = update.newComment() == null ? "" : update.newComment();
      step("set_comment", update.fieldNames()).put("comment", comment);
    } else if (change instanceof TableChange.UpdateColumnDefaultValue update) {
      step("set_default", update.fieldNames()).set("write_default", cell(update));
    } else if (change instanceof TableChange.SetProperty set) {
      putProperty(set.property(), set.value());
    } else if (change instanceof TableChange.RemoveProperty remove) {
      putProperty(remove.property(), null);
    } else {
      throw notOffered(change);
    }
  }

  /** Existing rows show the default of a new column, as in Spark. */
  private void putColumn(TableChange.AddColumn add) {
    if (add.position() != null) {
      throw new IllegalArgumentException("column '" + name(add.fieldNames()) + "' " + add.position()
          + ": the store adds columns last; leave out the position");
    }
    ObjectNode column = TableDefinition.column(Column.create(
        name(add.fieldNames()), add.dataType(), add.isNullable(), add.comment(), add.defaultValue(), null));
    column.set(TableProperties.READ_DEFAULT, column.path("write_default").isMissingNode()
        ? Json.tree(null) : column.get("write_default"));
    column.put("op", "add_column");
    steps.add(column);
    types.put(name(add.fieldNames()), column.path("type").asText());
  }

  private JsonNode cell(TableChange.UpdateColumnDefaultValue update) {
    DefaultValue given = update.newCurrentDefault();
    if (given == null) {
      return Json.tree(null); // DROP DEFAULT
    }
    String column = name(update.fieldNames());
    return DefaultCell.of(column, ColumnTypes.of(types.get(column)), given);
  }

  /** Sets a property, or takes it back if there is no text. */
  private void putProperty(String property, String text) {
    if (property.equals(TableCatalog.PROP_COMMENT)) {
      steps.addObject().put("op", "set_comment").put("comment", text == null ? "" : text);
    } else if (TableProperties.isOption(property)) {
      JsonNode value = text == null ? Json.tree(null) : TableProperties.value(property, text, "");
      steps.addObject().put("op", "set_option").put("option", property).set("value", value);
    } else if (TableProperties.isOfKey(property)) {
      throw fixed(property);
    } else if (text == null || !TableProperties.isOfSpark(property, text)) {
      putOfColumn(property, text);
    }
  }

  private void putOfColumn(String property, String text) {
    TableProperties.OfColumn of = TableProperties.ofColumn(property);
    String part = of.part();
    String operation = switch (part) {
      case "encoding", "compression", TableProperties.BLOCK_ROWS, TableProperties.TOO_LONG, TableProperties.MERGE ->
          "set_" + part;
      case TableProperties.DEFAULT_EXPRESSION -> "set_default";
      case TableProperties.TYPE -> "widen_column";
      default -> throw fixed(property);
    };
    JsonNode value = text == null ? Json.tree(null) : TableProperties.value(part, text, "");
    String column = ColumnNames.known(of.column(), List.copyOf(types.keySet()));
    steps.addObject().put("op", operation).put("name", column).set(part, value);
  }

  private ObjectNode step(String operation, String[] column) {
    return steps.addObject().put("op", operation).put("name", name(column));
  }

  private static String name(String[] path) {
    if (path.length != 1) {
      throw new IllegalArgumentException(
          "there is no column " + String.join(".", path) + ": columns have no nested fields");
    }
    return path[0];
  }

  private static IllegalArgumentException fixed(String property) {
    return new IllegalArgumentException(
        "property '" + property + "' is set when a table is created, and cannot change");
  }

  private static UnsupportedOperationException notOffered(TableChange change) {
    String why = change instanceof TableChange.UpdateColumnPosition ? "the position of a column cannot change"
        : change instanceof TableChange.UpdateColumnNullability ? "a nullable column cannot become NOT NULL"
        : change instanceof TableChange.ClusterBy
            ? "the partitioning of a table cannot change: for ranges see CALL system.add_range_partition"
        : "the store has no constraints but NOT NULL and its key";
    return new UnsupportedOperationException("ALTER TABLE: " + why);
  }
}
