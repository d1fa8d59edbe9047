package io.nyala.spark.write;

import io.nyala.flight.ScanParts;
import io.nyala.spark.options.ColumnNames;
import io.nyala.spark.options.PythonSource;
import io.nyala.spark.tables.StoreTable;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One {@code DELETE}, {@code UPDATE} or {@code MERGE}: it reads the table at one moment, and changes rows by their keys,
 * unless one of them changed after that moment.
 */
public final class RowOperation implements SupportsDelta {
  private final StoreTable table;
  private final Command command;
  private final WrittenTable written;
  private ScanParts.Moment moment;
  private List<String> assigned;

  public RowOperation(StoreTable table, Command command, WrittenTable written) {
    this.table = table;
    this.command = command;
    this.written = written;
  }

  /** Tells to which columns an update assigns; otherwise all are sent. */
  void assign(List<String> columns) {
    assigned = columns;
  }

  boolean isAssigned() {
    return assigned != null;
  }

  /** Returns whether an update may give a row another key. */
  boolean movesRows() {
    return assigned == null || assigned.stream().anyMatch(written.key()::contains);
  }

  /** Returns whether an update that moves no rows sends a column. */
  boolean isSent(String column) {
    return assigned == null || assigned.contains(column) || written.key().contains(column);
  }

  @Override
  public String description() {
    return "nyala " + command + " of " + table.name();
  }

  @Override
  public Command command() {
    return command;
  }

  @Override
  public NamedReference[] rowId() {
    return written.key().stream().map(ColumnNames::reference).toArray(NamedReference[]::new);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ofQuery) {
    moment = written.moment();
    return table.newScanBuilder(PythonSource.with(ofQuery, Map.of("versionAsOf", Long.toString(moment.snapshot()))));
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    if (written.isNumbered() && isAssigned() && movesRows()) {
      throw new UnsupportedOperationException(
          "the key of " + table.name() + " has a number that the store gives to new rows, so it cannot be updated: delete "
              + "the rows and insert them");
    }
    return new DeltaWriteBuilder() {
      @Override
      public DeltaWrite build() {
        return new ToBatch(info);
      }
    };
  }

  /** The write of one plan; each time that it runs is a transaction of its own. */
  private final class ToBatch implements DeltaWrite {
    private final LogicalWriteInfo info;

    ToBatch(LogicalWriteInfo info) {
      this.info = info;
    }

    @Override
    public DeltaBatchWrite toBatch() {
      return new ChangesWrite(target(info), moment, null, false, null);
    }

    @Override
    public String description() {
      return RowOperation.this.description();
    }

    @Override
    public String toString() {
      return description();
    }
  }

  private WriteTarget target(LogicalWriteInfo info) {
    StructType row = info.schema();
    List<String> updated = Stream.of(row.fieldNames()).filter(this::isSent).toList();
    return written.target(moment, new WriteTarget.Columns(
        info.rowIdSchema().orElseThrow(), row, updated, movesRows(), "insert", List.of(row.fieldNames())));
  }
}
