package io.nyala.spark.options;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.Json;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.catalog.TableCatalog;

/**
 * The names among {@code TBLPROPERTIES}, which are the store's own words: options of the table, how it is keyed and
 * divided, and {@code encoding.<column>} and the like for columns.
 */
public final class TableProperties {
  public static final String PRIMARY_KEY = "primary_key";
  public static final String UNIQUE_KEY = "unique_key";
  public static final String BOUNDS = "bounds";
  public static final String SPLITS = "splits";
  public static final String TYPE = "type";
  public static final String READ_DEFAULT = "read_default";
  public static final String IMMUTABLE = "immutable";
  public static final String BLOCK_ROWS = "block_rows";
  public static final String TOO_LONG = "too_long";
  public static final String DEFAULT_EXPRESSION = "default_expression";
  public static final String MERGE = "merge";
  public static final String ROW_COLUMN = "row_column";
  public static final String ORDER_BY = "order_by";
  public static final String TTL = "ttl";

  /** Options of a table, which may change. */
  private static final List<String> OPTIONS = OptionNames.of("table property");
  private static final List<String> OF_KEY = List.of(PRIMARY_KEY, UNIQUE_KEY, BOUNDS, SPLITS);
  private static final List<String> OF_COLUMNS = OptionNames.of("column property");

  private TableProperties() {}

  /** One attribute of one column. */
  public record OfColumn(String part, String column) {}

  public static boolean isOption(String property) {
    return OPTIONS.contains(property);
  }

  /** Returns whether a property says how a new table is keyed and divided. */
  public static boolean isOfKey(String property) {
    return OF_KEY.contains(property);
  }

  /** Returns what a property says of which column; throws an IllegalArgumentException if there is no such property. */
  public static OfColumn ofColumn(String property) {
    int dot = property.indexOf('.');
    String part = dot < 0 ? property : property.substring(0, dot);
    if (dot < 0 || !OF_COLUMNS.contains(part)) {
      throw unknown(property, part, dot);
    }
    return new OfColumn(part, property.substring(dot + 1));
  }

  /** Returns the JSON of the value of an option, or of an attribute of a column of a type. */
  public static JsonNode value(String part, String text, String typeWord) {
    boolean isBool = part.equals(IMMUTABLE) || part.equals(UNIQUE_KEY) || part.equals(ROW_COLUMN);
    boolean isWord = part.equals("maintenance") || part.equals(ORDER_BY) || part.equals(TTL);
    boolean isNumber = isOption(part) && !isWord && !isBool || part.equals(BLOCK_ROWS);
    if (part.equals(READ_DEFAULT)) {
      return CellJson.of(text, typeWord);
    }
    return isNumber ? CellJson.of(text, "int64")
        : isBool ? CellJson.of(text, "bool") : Json.tree(text.strip());
  }

  /** Returns names between commas, or in a JSON list. */
  public static List<String> names(String text) {
    List<String> found = new ArrayList<>();
    if (text.stripLeading().startsWith("[")) {
      json(PRIMARY_KEY, text).forEach(name -> found.add(name.asText()));
    } else {
      Stream.of(text.split(",")).map(String::strip).filter(name -> !name.isEmpty()).forEach(found::add);
    }
    return found;
  }

  /** Returns names as {@code names} reads them. */
  public static String text(List<String> names) {
    boolean isPlain = names.stream().allMatch(name -> !name.contains(",") && !name.startsWith("["));
    return isPlain ? String.join(", ", names) : Json.of(names);
  }

  public static JsonNode json(String property, String text) {
    try {
      return Json.read(text);
    } catch (IOException error) {
      throw new IllegalArgumentException("property '" + property + "' is not a JSON list: " + text);
    }
  }

  /** Returns whether a property is one that Spark adds, and means nothing here. Throws if it means something else. */
  public static boolean isOfSpark(String property, String value) {
    switch (property) {
      case TableCatalog.PROP_OWNER, TableCatalog.PROP_COMMENT, TableCatalog.PROP_TABLE_TYPE:
        return true;
      case TableCatalog.PROP_PROVIDER:
        if (!value.equalsIgnoreCase(PythonSource.FORMAT)) {
          throw new IllegalArgumentException(
              "the tables of this catalog are Nyala's, not " + value + ": leave out USING, or write USING nyala; in "
                  + "place of saveAsTable use df.writeTo(...).tableProperty('primary_key', 'id').create(), or "
                  + "createOrReplace(), and insertInto where the table is there");
        }
        return true;
      case TableCatalog.PROP_LOCATION, TableCatalog.PROP_EXTERNAL, TableCatalog.PROP_IS_MANAGED_LOCATION:
        throw new IllegalArgumentException("the store keeps tables in its own files: leave out LOCATION and EXTERNAL");
      case TableCatalog.PROP_COLLATION:
        throw new IllegalArgumentException("a table orders text by its bytes: leave out DEFAULT COLLATION");
      default:
        if (property.startsWith(TableCatalog.OPTION_PREFIX)) {
          throw new IllegalArgumentException("a table has no OPTIONS: give TBLPROPERTIES");
        }
        return false;
    }
  }

  private static IllegalArgumentException unknown(String property, String part, int dot) {
    List<String> whole = Stream.concat(OPTIONS.stream(), OF_KEY.stream()).toList();
    List<String> known = dot < 0 ? Stream.concat(whole.stream(), OF_COLUMNS.stream()).toList() : OF_COLUMNS;
    Optional<String> near = NearestName.of(part, known);
    String hint = near.map(name -> OF_COLUMNS.contains(name)
            ? name + "." + (dot < 0 ? "<column>" : property.substring(dot + 1)) : name)
        .map(name -> ", did you mean '" + name + "'?")
        .orElse("; known: " + String.join(", ", whole) + ", and "
            + String.join(", ", OF_COLUMNS.stream().map(each -> each + ".<column>").toList()));
    return new IllegalArgumentException("unknown table property '" + property + "'" + hint);
  }
}
