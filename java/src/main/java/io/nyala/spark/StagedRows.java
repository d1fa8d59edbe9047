package io.nyala.spark;

import io.nyala.spark.tables.StoreTables;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.WriteBuilder;

/**
 * The table that a statement fills and then keeps: {@code stored} is its name in the store until then. With {@code
 * replaced}, its rows replace those of a table that is there.
 */
final class StagedRows implements StagedTable, SupportsWrite {
  private final NyalaTable rows;
  private final String stored;
  private final Runnable keep;
  private final Runnable drop;
  private final StoreTables replaced;
  private boolean isWritten;

  StagedRows(NyalaTable rows, String stored, Runnable keep, Runnable drop, StoreTables replaced) {
    this.rows = rows;
    this.stored = stored;
    this.keep = keep;
    this.drop = drop;
    this.replaced = replaced;
  }

  String stored() {
    return stored;
  }

  @Override
  public String name() {
    return rows.name();
  }

  @Override
  public Column[] columns() {
    return rows.columns();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return rows.capabilities();
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    isWritten = true;
    WriteBuilder builder = rows.told(true, List.of()).newWriteBuilder(info);
    return replaced == null ? builder : ((SupportsTruncate) builder).truncate();
  }

  @Override
  public void commitStagedChanges() {
    if (replaced != null && !isWritten) {
      replaced.truncate(stored); // REPLACE TABLE without a query
    }
    keep.run();
  }

  @Override
  public void abortStagedChanges() {
    drop.run();
  }
}
