package io.nyala.spark.write;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.Json;
import io.nyala.flight.ScanParts;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.tables.StoreTable;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A write of rows from Java: a statement of SQL, a {@code MERGE} that only inserts, or rows in the place of those that a
 * condition selects. {@code leftOut} are the columns that Spark filled, which are not sent.
 */
public record RowWrite(
    StoreTable table, CaseInsensitiveStringMap options, LogicalWriteInfo info, List<String> leftOut)
    implements WriteBuilder {
  /** clients/spark/statement.py says the same. */
  private static final String ONLY_NEW =
      "INSERT only adds rows; the option operation=upsert also changes existing rows";
  private static final String ONCE =
      "INSERT OVERWRITE takes each key once; with the option operation=upsert one row of each key stays";
  private static final List<String> OPERATIONS = List.of("insert", "upsert");
  private static final List<String> OTHERS = List.of("operationColumn", "ignoreNull", "txnAppId", "txnVersion");

  @Override
  public Write build() {
    WrittenTable written = WrittenTable.of(table.name(), options, "MERGE");
    return new ToBatch("nyala MERGE of " + table.name(), () -> new ChangesWrite(
        written.target(null, inserting("insert")), null, null, false, null));
  }

  /**
   * Returns the write of a statement that adds or changes rows by their keys, in the place of all if it {@code truncates};
   * empty if it has options, types, servers or another table that Python knows better.
   */
  Optional<Write> plain(boolean truncates) {
    String given = options.get("operation");
    String operation = (given == null ? "insert" : given).toLowerCase(Locale.ROOT);
    String base = operation.replace("_ignore", "");
    boolean isKnown = truncates ? OPERATIONS.contains(operation) : List.of(
        "insert", "upsert", "update", "delete").contains(base) && operation.matches("[a-z]+(_ignore)?");
    if (!isKnown || !TableOptions.isPlain(options) || !isOfTable() || !hasTypesOfTable()) {
      return Optional.empty();
    }
    return WrittenTable.alone(options).map(written -> {
      WriteTarget.Columns columns = base.equals("delete") ? writing(operation, written.key()) : inserting(operation);
      String advice = given != null ? null : truncates ? ONCE : ONLY_NEW;
      return new ToBatch("nyala " + operation + " into " + table.name(), () -> new ChangesWrite(
          written.target(null, columns), null, null, truncates, advice));
    });
  }

  private boolean isOfTable() {
    CaseInsensitiveStringMap own = table.options();
    return ReadOptions.table(own).equals(ReadOptions.table(options))
        && ReadOptions.uri(own).equals(ReadOptions.uri(options));
  }

  private boolean hasTypesOfTable() {
    StructType known = table.schema();
    return Stream.of(info.schema().fields()).allMatch(field -> known.getFieldIndex(field.name()).isDefined()
        && known.apply(field.name()).dataType().equals(field.dataType()));
  }

  /** Returns the write in the place of the rows that a filter selects, as they are at one moment. */
  WriteBuilder replacing(String where) {
    String operation = replacement();
    boolean isPlain = OTHERS.stream().noneMatch(name -> options.containsKey(name) && !isFalse(name));
    if (!OPERATIONS.contains(operation) || !isPlain) {
      throw new UnsupportedOperationException(
          "what replaces the rows of a condition is inserted or upserted: leave out other options of writes than "
              + "operation, and set that to insert or upsert");
    }
    WrittenTable written = WrittenTable.of(table.name(), options, "REPLACE WHERE");
    ScanParts.Moment moment = written.moment();
    ObjectNode found = Json.object().put("table", written.table().name());
    found.put("where", where).put("as_of", moment.snapshot());
    written.key().forEach(found.putArray("columns")::add);
    return new WriteBuilder() {
      @Override
      public Write build() {
        return new ToBatch("nyala REPLACE of " + table.name() + " WHERE " + where, () -> new ChangesWrite(
            written.target(moment, inserting(operation)), moment, found, false, null));
      }
    };
  }

  /** Returns whether the table has partitions, now. */
  boolean isPartitioned() {
    return WrittenTable.isPartitioned(options);
  }

  /** Returns whether rows in the place of others may change existing ones. */
  boolean isUpsert() {
    return replacement().equals("upsert");
  }

  private String replacement() {
    return options.getOrDefault("operation", "insert").toLowerCase(Locale.ROOT);
  }

  private boolean isFalse(String option) {
    return options.get(option).equalsIgnoreCase("false");
  }

  private WriteTarget.Columns inserting(String operation) {
    return writing(operation, Stream.of(info.schema().fieldNames()).filter(name -> !leftOut.contains(name)).toList());
  }

  private WriteTarget.Columns writing(String operation, List<String> columns) {
    return new WriteTarget.Columns(new StructType(), info.schema(), List.of(), false, operation, columns);
  }

  /** The write of one plan; each time that it runs is a transaction of its own. */
  private record ToBatch(String description, Supplier<ChangesWrite> made) implements Write {
    @Override
    public BatchWrite toBatch() {
      return made.get();
    }

    @Override
    public String toString() {
      return description;
    }
  }
}
