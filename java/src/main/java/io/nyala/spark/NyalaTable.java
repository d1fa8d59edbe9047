package io.nyala.spark;

import io.nyala.flight.FlightStore;
import io.nyala.flight.Json;
import io.nyala.spark.options.ColumnMark;
import io.nyala.spark.options.PythonSource;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.read.NyalaScanBuilder;
import io.nyala.spark.tables.StoreTable;
import io.nyala.spark.tables.StoreTables;
import io.nyala.spark.tables.TableDescription;
import io.nyala.spark.write.RowOperation;
import io.nyala.spark.write.RowWrite;
import io.nyala.spark.write.SinkBuilder;
import io.nyala.spark.write.WrittenTable;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.util.CharVarcharUtils;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TruncatableTable;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table of a store, or its changes; planned anew for each query. */
class NyalaTable implements StoreTable, SupportsWrite, SupportsRowLevelOperations, TruncatableTable {
  private static final String STATEMENT = "statement";
  private static final String INSERT = "insert";
  private static final String MERGE = "merge";

  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final boolean isOfCatalog;
  private final TableDescription about;
  private final Map<String, String> ofWrite;
  private final List<String> leftOut;

  NyalaTable(String name, StructType schema, CaseInsensitiveStringMap options, boolean isOfCatalog) {
    this(name, schema, options, isOfCatalog, null);
  }

  /** {@code about} is what the store says of a table of a catalog; null of changes, and elsewhere. */
  NyalaTable(
      String name, StructType schema, CaseInsensitiveStringMap options, boolean isOfCatalog, TableDescription about) {
    this(name, ColumnMark.put(schema), options, isOfCatalog, about, Map.of(), List.of());
  }

  private NyalaTable(
      String name, StructType schema, CaseInsensitiveStringMap options, boolean isOfCatalog, TableDescription about,
      Map<String, String> ofWrite, List<String> leftOut) {
    this.name = name;
    this.schema = schema;
    this.options = options;
    this.isOfCatalog = isOfCatalog;
    this.about = about;
    this.ofWrite = ofWrite;
    this.leftOut = leftOut;
  }

  /**
   * Returns the same table for a {@code MERGE} that only inserts, of which Spark makes a plain write: whatever the
   * operation of statements is, it inserts.
   */
  NyalaTable toldOfMerge() {
    return new NyalaTable(name, schema, options, isOfCatalog, about, Map.of(STATEMENT, MERGE), List.of());
  }

  /** Returns the same table for one write, with whether it is an SQL statement and the columns that it leaves out. */
  NyalaTable told(boolean isStatement, List<String> leftOut) {
    Map<String, String> told = Map.of(STATEMENT, isStatement ? INSERT : "write", "leftOut", Json.of(leftOut));
    return new NyalaTable(name, schema, options, isOfCatalog, about, told, leftOut);
  }

  /**
   * Returns the same table for a query that gives its columns in another order, and each key once: whatever the
   * operation of statements is, it inserts.
   */
  NyalaTable filledIn(Column[] columns) {
    List<StructField> ordered = new ArrayList<>();
    Stream.of(columns).forEach(column -> ordered.add(schema.apply(column.name())));
    StructType same = new StructType(ordered.toArray(StructField[]::new));
    CaseInsensitiveStringMap adding = PythonSource.with(options, Map.of("operation", INSERT));
    return new NyalaTable(name, same, adding, isOfCatalog, about);
  }

  @Override
  public boolean isOfCatalog() {
    return isOfCatalog;
  }

  boolean isTold() {
    return !ofWrite.isEmpty();
  }

  @Override
  public CaseInsensitiveStringMap options() {
    return options;
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    CaseInsensitiveStringMap all = TableOptions.of(options, info.options());
    return () -> new RowOperation(this, info.command(), WrittenTable.of(name, all, info.command().toString()));
  }

  @Override
  public boolean truncateTable() {
    ReadOptions.checkWhole(name, options, "TRUNCATE");
    FlightStore store = FlightStore.at(ReadOptions.uri(options), TableOptions.credentials(options));
    new StoreTables(store).truncate(ReadOptions.table(options));
    return true;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  @SuppressWarnings("deprecation") // columns() uses it
  public StructType schema() {
    return schema;
  }

  /** Returns the columns with their own types, also those whose cells are strings: {@code varchar(n)}. */
  @Override
  public Column[] columns() {
    return CatalogV2Util.structTypeToV2Columns(CharVarcharUtils.getRawSchema(schema), true);
  }

  @Override
  public TableDescription about() {
    return about;
  }

  @Override
  public Transform[] partitioning() {
    return about == null ? new Transform[0] : about.partitioning();
  }

  @Override
  public Map<String, String> properties() {
    return about == null ? Map.of() : about.properties();
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE,
        TableCapability.OVERWRITE_BY_FILTER,
        TableCapability.OVERWRITE_DYNAMIC);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap ofQuery) {
    CaseInsensitiveStringMap all = TableOptions.of(options, ofQuery);
    if (TableOptions.isOfChanges(all) && !TableOptions.isOfChanges(options)) {
      // The schema is that of rows: deletes would look like rows.
      throw new IllegalArgumentException(
          "changes have the columns _op and _timestamp, which " + name + " lacks: read " + name + ".changes");
    }
    return new NyalaScanBuilder(this, all);
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    CaseInsensitiveStringMap given = TableOptions.of(options, info.options());
    RowWrite rows = new RowWrite(this, given, info, leftOut);
    if (MERGE.equals(ofWrite.get(STATEMENT))) {
      return rows;
    }
    CaseInsensitiveStringMap all = PythonSource.with(given, ofWrite);
    return new SinkBuilder(PythonSource.writer(new LogicalWriteInfo() {
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
    }), isOfCatalog && !isTold(), isOfCatalog && INSERT.equals(ofWrite.get(STATEMENT)), rows);
  }
}
