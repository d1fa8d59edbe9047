package io.nyala.spark;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table of a store, or its changes: what is planned anew for each query. */
final class NyalaTable implements SupportsRead, SupportsWrite {
  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;

  NyalaTable(String name, StructType schema, CaseInsensitiveStringMap options) {
    this.name = name;
    this.schema = schema;
    this.options = options;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  @SuppressWarnings("deprecation") // columns() is made of it
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ofQuery) {
    CaseInsensitiveStringMap all = TableOptions.of(options, ofQuery);
    if (TableOptions.isOfChanges(all) && !TableOptions.isOfChanges(options)) {
      // The schema is that of rows, so that deletes would look like rows.
      throw new IllegalArgumentException(
          "changes come with the columns _op and _timestamp, which " + name + " has not: read " + name + ".changes");
    }
    return new NyalaScanBuilder(name, schema, all);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap all = TableOptions.of(options, info.options());
    return PythonSource.writer(new LogicalWriteInfo() {
      @Override
      public CaseInsensitiveStringMap options() {
        return all;
      }

      @Override
      public String queryId() {
        return info.queryId();
      }

      @Override
      public StructType schema() {
        return info.schema();
      }
    });
  }
}
