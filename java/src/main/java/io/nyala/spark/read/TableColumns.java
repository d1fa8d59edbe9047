package io.nyala.spark.read;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.FlightStore;
import io.nyala.flight.Json;
import io.nyala.flight.StoreException;
import io.nyala.flight.StoreIdentity;
import io.nyala.spark.options.ColumnMark;
import io.nyala.spark.options.ColumnNames;
import io.nyala.spark.options.ColumnTypes;
import io.nyala.spark.options.PlanError;
import io.nyala.spark.options.PythonSource;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.tables.TableDescription;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils$;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The columns of a read: those of a table, of its changes, or measures; as {@code clients/spark} gives them. */
public final class TableColumns {
  private final CaseInsensitiveStringMap options;
  private final FlightStore store;
  private final String table;

  private JsonNode description;

  /** The columns of a table, and what else the store says of it; null of its changes. */
  public record OfTable(StructType schema, TableDescription about) {}

  private TableColumns(CaseInsensitiveStringMap options) {
    this.options = options;
    table = ReadOptions.table(options);
    store = FlightStore.at(ReadOptions.uri(options), TableOptions.credentials(options));
  }

  /** Returns the columns of a read with these options. Python answers for streams, whose options it checks. */
  public static StructType of(CaseInsensitiveStringMap options) {
    if (ReadOptions.isOfStream(options)) {
      return PythonSource.schema(options);
    }
    ReadOptions.scan(options); // checks them
    try {
      return new TableColumns(options).ofRead();
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  /** Returns the columns of a table of a catalog, or of its changes; empty if there is no such table. */
  public static Optional<OfTable> ofTable(CaseInsensitiveStringMap options) {
    try {
      TableColumns columns = new TableColumns(options);
      if (TableOptions.isOfChanges(options)) {
        return Optional.of(new OfTable(columns.ofChanges(), null)); // in batch a query tells since when
      }
      ReadOptions.scan(options); // checks them
      return Optional.of(new OfTable(columns.ofRows(), new TableDescription(columns.description)));
    } catch (StoreException error) {
      if (error.is(StoreException.NOT_FOUND)) {
        return Optional.empty();
      }
      throw PlanError.thrown(error);
    }
  }

  private StructType ofRead() {
    if (options.containsKey("aggregate")) {
      List<Field> measures = store.plan(ReadOptions.scan(options), StoreIdentity.UNKNOWN).schema().getFields();
      return new StructType(measures.stream()
          .map(field -> new StructField(
              field.getName(), ColumnTypes.of(field), field.isNullable(), Metadata.empty()))
          .toArray(StructField[]::new));
    }
    return TableOptions.isOfChanges(options) ? ofChanges() : ofRows();
  }

  /** Python answers where statements that write need Spark's form of the defaults of columns. */
  private StructType ofRows() {
    List<JsonNode> columns = described();
    boolean isWritable = ReadOptions.isOfWholeTable(options);
    boolean hasDefaults = columns.stream().anyMatch(column -> column.hasNonNull("write_default"))
        || !description.path("unique_key").asBoolean(true); // then the store numbers the rows
    if (isWritable && (hasDefaults || TableOptions.isOfWrites(options))) {
      return PythonSource.schema(options);
    }
    String mark = isWritable ? ReadOptions.uri(options) + " " + table : null;
    return new StructType(columns.stream().map(column -> field(column, "", mark)).toArray(StructField[]::new));
  }

  private StructType ofChanges() {
    List<JsonNode> columns = described();
    StructType feed = new StructType()
        .add("_op", DataTypes.StringType, false)
        .add("_timestamp", DataTypes.LongType, false);
    Stream<StructField> now = columns.stream().map(column -> field(column, "", null));
    Stream<StructField> before = options.getBoolean("beforeValues", false)
        ? columns.stream().map(column -> field(column, ColumnNames.BEFORE, null)) : Stream.of();
    return new StructType(Stream.of(Stream.of(feed.fields()), now, before)
        .flatMap(each -> each)
        .toArray(StructField[]::new));
  }

  /** Returns the table's columns, or those that the option names, in its order. */
  private List<JsonNode> described() {
    List<JsonNode> all = new ArrayList<>();
    description = store.ask("describe_table", Map.of("table", table));
    description.path("columns").forEach(all::add);
    if (!options.containsKey("columns")) {
      return all;
    }
    List<String> known = all.stream().map(TableColumns::name).toList();
    List<String> asked = names(options.get("columns"));
    List<Integer> places = asked.stream().map(name -> known.indexOf(ColumnNames.known(name, known))).toList();
    if (places.stream().distinct().count() < places.size()) {
      throw new IllegalArgumentException("duplicate column in " + String.join(", ", asked));
    }
    return places.stream().map(all::get).toList();
  }

  /** Returns the names in a JSON list, or between commas. */
  private static List<String> names(String text) {
    List<String> found = new ArrayList<>();
    if (!text.stripLeading().startsWith("[")) {
      Stream.of(text.split(",")).map(String::strip).filter(name -> !name.isEmpty()).forEach(found::add);
      return found;
    }
    try {
      Json.read(text).forEach(name -> found.add(name.asText()));
      return found;
    } catch (IOException error) {
      throw new IllegalArgumentException("option columns is '" + text + "': not a JSON list");
    }
  }

  /**
   * Returns a column; {@code mark} tells the writer of a statement that it is that of a whole table, and then Spark is
   * told the length of a {@code varchar(n)}, so that it refuses longer text in statements.
   */
  private static StructField field(JsonNode column, String before, String mark) {
    MetadataBuilder metadata = new MetadataBuilder();
    String comment = column.path("comment").asText("");
    if (!comment.isEmpty()) {
      metadata.putString("comment", comment);
    }
    String word = column.path("type").asText();
    if (mark != null) {
      metadata.putString(ColumnMark.KEY, mark);
      if (ColumnTypes.isVarchar(word)) {
        metadata.putString(CharVarcharUtils$.MODULE$.CHAR_VARCHAR_TYPE_STRING_METADATA_KEY(), word);
      }
    }
    boolean isNullable = column.path("nullable").asBoolean() || !before.isEmpty();
    DataType type = ColumnTypes.of(word);
    return new StructField(before + name(column), type, isNullable, metadata.build());
  }

  private static String name(JsonNode column) {
    return column.path("name").asText();
  }
}
