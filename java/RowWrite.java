package io.nyala.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.Json;
import io.nyala.flight.ScanParts;
import java.util.List;
import java.util.Locale;
import java.util.function.Supplier;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A write of new rows from Java: a {@code MERGE} that only inserts, or rows in the place of those that a condition
 * selects. {@code leftOut} are the columns that Spark filled.
 */
record RowWrite(
    NyalaTable table, CaseInsensitiveStringMap options, LogicalWriteInfo info, List<String> leftOut)
    implements WriteBuilder {
  private static final List<String> OPERATIONS = List.of("insert", "upsert");
  private static final List<String> OTHERS = List.of("operationColumn", "ignoreNull", "txnAppId", "txnVersion");

  @Override
  public Write build() {
    WrittenTable written = WrittenTable.of(table, "MERGE");
    return new ToBatch("nyala MERGE of " + table.name(), () -> new ChangesWrite(
        written.target(null, inserting("insert")), null, null));
  }

  /** Returns the write in the place of the rows that a filter selects, as they are at one moment. */
  WriteBuilder replacing(String where) {
    String operation = options.getOrDefault("operation", "insert").toLowerCase(Locale.ROOT);
    boolean isPlain = OTHERS.stream().noneMatch(name -> options.containsKey(name) && !isFalse(name));
    if (!OPERATIONS.contains(operation) || !isPlain) {
      throw new UnsupportedOperationException(
          "what replaces the rows of a condition is inserted or upserted: leave out other options of writes than "
              + "operation, and set that to insert or upsert");
    }
    WrittenTable written = WrittenTable.of(table, "REPLACE WHERE");
    ScanParts.Moment moment = written.moment();
    ObjectNode found = Json.object().put("table", written.table()).put("where", where).put("as_of", moment.snapshot());
    written.key().forEach(found.putArray("columns")::add);
    return new WriteBuilder() {
      @Override
      public Write build() {
        return new ToBatch("nyala REPLACE of " + table.name() + " WHERE " + where, () -> new ChangesWrite(
            written.target(moment, inserting(operation)), moment, found));
      }
    };
  }

  private boolean isFalse(String option) {
    return options.get(option).equalsIgnoreCase("false");
  }

  private WriteTarget.Columns inserting(String operation) {
    List<String> columns = Stream.of(info.schema().fieldNames())
        .filter(name -> operation.equals("insert") || !leftOut.contains(name))
        .toList();
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
