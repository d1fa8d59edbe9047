package io.nyala.spark;

import io.nyala.flight.Credentials;
import io.nyala.flight.FlightStore;
import io.nyala.flight.StoreException;
import io.nyala.spark.options.PlanError;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.read.BucketFunctions;
import io.nyala.spark.read.TableColumns;
import io.nyala.spark.tables.StoreTables;
import io.nyala.spark.tables.TableDefinition;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalogCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The tables of a store in SQL: {@code nyala.default.homes}, and {@code nyala.default.homes.changes}, the change feed.
 *
 * <p>{@code spark.sql.catalog.nyala} names this class, {@code spark.sql.catalog.nyala.uri} the server, {@code .token},
 * {@code .tlsRoots} and so on what it is shown, {@code .operation} the operation of statements, by default {@code
 * insert}, and {@code .dropKeepSeconds} how long a table that is dropped or replaced can be recalled.
 */
public final class NyalaCatalog
    implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog, BucketFunctions {
  private static final String NAMESPACE = "default";
  private static final String CHANGES = "changes";
  private static final String KEEP_SECONDS = "dropKeepSeconds";

  private String name;
  private Map<String, String> ofServer;
  private Map<String, String> ofWrites;
  private long keepSeconds;

  @Override
  public void initialize(String catalogName, CaseInsensitiveStringMap options) {
    name = catalogName;
    ofServer = TableOptions.ofServer(options);
    ofWrites = TableOptions.ofWrites(options);
    keepSeconds = ReadOptions.number(KEEP_SECONDS, options.getOrDefault(KEEP_SECONDS, "0"), 0);
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {NAMESPACE};
  }

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    if (!isDefault(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    List<Identifier> tables = new ArrayList<>();
    try {
      store().ask("tables", null).path("tables")
          .forEach(table -> tables.add(Identifier.of(defaultNamespace(), table.asText())));
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
    return tables.toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    Optional<String> rows = rowsBeside(table);
    if (rows.isPresent() && MetadataTable.isNamed(table.name())) {
      if (new StoreTables(store()).describe(rows.get()).isEmpty()) {
        throw new NoSuchTableException(table);
      }
      return new MetadataTable(fullName(table), rows.get(), store());
    }
    return load(table, Map.of());
  }

  /** {@code VERSION AS OF}: a timestamp of the store. */
  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return load(table, Map.of("versionAsOf", version));
  }

  /** {@code TIMESTAMP AS OF}, in microseconds since 1970. */
  @Override
  public Table loadTable(Identifier table, long timestamp) throws NoSuchTableException {
    return load(table, Map.of("timestampAsOf", Instant.EPOCH.plus(timestamp, ChronoUnit.MICROS).toString()));
  }

  private NyalaTable load(Identifier table, Map<String, String> more) throws NoSuchTableException {
    Map<String, String> options = new HashMap<>(more);
    options.putAll(ofServer());
    String[] namespace = table.namespace();
    if (isDefault(namespace)) {
      options.put("table", table.name());
      options.putAll(ofWrites);
    } else if (rowsBeside(table).isPresent() && table.name().equals(CHANGES)) {
      options.put("table", rowsBeside(table).get());
      options.put("readChangeFeed", "true");
    } else {
      throw new NoSuchTableException(table);
    }
    TableColumns.OfTable found = TableColumns.ofTable(TableOptions.ofSchema(new CaseInsensitiveStringMap(options)))
        .orElseThrow(() -> new NoSuchTableException(table));
    CaseInsensitiveStringMap all = new CaseInsensitiveStringMap(options);
    boolean isPartitioned = found.about() != null && found.about().partitioning().length > 0;
    return isPartitioned
        ? new PartitionedTable(fullName(table), found.schema(), all, found.about())
        : new NyalaTable(fullName(table), found.schema(), all, true, found.about());
  }

  private String fullName(Identifier table) {
    String of = rowsBeside(table).map(rows -> rows + ".").orElse("");
    return name + "." + NAMESPACE + "." + of + table.name();
  }

  /**
   * Returns the table of rows that a name is beside, as {@code default.homes.history}, and {@code homes.history} where
   * {@code default} is in use; empty if it is no such name.
   */
  private static Optional<String> rowsBeside(Identifier table) {
    String[] namespace = table.namespace();
    boolean isWhole = namespace.length == 2 && namespace[0].equals(NAMESPACE);
    boolean isShort = namespace.length == 1 && !namespace[0].equals(NAMESPACE);
    return isWhole || isShort ? Optional.of(namespace[namespace.length - 1]) : Optional.empty();
  }

  @Override
  public Set<TableCatalogCapability> capabilities() {
    return EnumSet.of(
        TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE, TableCatalogCapability.SUPPORT_TABLE_CONSTRAINT);
  }

  @Override
  public Table createTable(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    tables(table.namespace()).create(table, TableDefinition.of(table.name(), info));
    return created(table);
  }

  @Override
  public StagedTable stageCreate(Identifier table, TableInfo info)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    return staged(table).create(table, info);
  }

  /** Spark looks itself whether there is something to replace. */
  @Override
  public StagedTable stageReplace(Identifier table, TableInfo info) throws NoSuchNamespaceException {
    return stageCreateOrReplace(table, info);
  }

  @Override
  public StagedTable stageCreateOrReplace(Identifier table, TableInfo info) throws NoSuchNamespaceException {
    return staged(table).createOrReplace(table, info);
  }

  private StagedTables staged(Identifier table) throws NoSuchNamespaceException {
    return new StagedTables(tables(table.namespace()), this::created, keepSeconds);
  }

  @Override
  public Table createTableLike(Identifier table, TableInfo info, Table source)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    tables(table.namespace()).create(table, TableDefinition.like(table.name(), info, source));
    return created(table);
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    ofRows(table).alter(table, changes);
    return loadTable(table);
  }

  @Override
  public boolean dropTable(Identifier table) {
    return drop(table, keepSeconds);
  }

  /** Drops a table for good. */
  @Override
  public boolean purgeTable(Identifier table) {
    return drop(table, 0);
  }

  private boolean drop(Identifier table, long seconds) {
    if (rowsBeside(table).isPresent()) { // Spark has seen that it is there
      throw new UnsupportedOperationException(
          fullName(table) + " is dropped with its table: drop " + rowsBeside(table).get());
    }
    return isDefault(table.namespace()) && new StoreTables(store()).drop(table, seconds);
  }

  /** Spark may say the catalog's name, too, before the new name. */
  @Override
  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    StoreTables tables = ofRows(from);
    String[] namespace = to.namespace();
    boolean isNamed = namespace.length > 0 && namespace[0].equals(name);
    if (!isDefault(isNamed ? Arrays.copyOfRange(namespace, 1, namespace.length) : namespace)) {
      throw new IllegalArgumentException("RENAME TO " + to + ": a table cannot move out of " + name + "." + NAMESPACE);
    }
    tables.rename(from, to.name());
  }

  private NyalaTable created(Identifier table) {
    try {
      return load(table, Map.of());
    } catch (NoSuchTableException dropped) {
      throw PlanError.<RuntimeException>undeclared(dropped);
    }
  }

  /** Whether its tables are those of the store at {@code uri}. */
  boolean isOf(String uri) {
    return uri.equals(ofServer.get("uri"));
  }

  /** Returns the name of a table of rows. */
  static Identifier named(String table) {
    return Identifier.of(new String[] {NAMESPACE}, table);
  }

  private StoreTables ofRows(Identifier table) throws NoSuchTableException {
    if (!isDefault(table.namespace())) {
      throw new NoSuchTableException(table);
    }
    return new StoreTables(store());
  }

  private StoreTables tables(String[] namespace) throws NoSuchNamespaceException {
    if (!isDefault(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return new StoreTables(store());
  }

  private FlightStore store() {
    try {
      return FlightStore.at(ofServer().get("uri"), Credentials.of(ofServer()));
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  @Override
  public UnboundProcedure loadProcedure(Identifier procedure) {
    if (procedure.namespace().length != 1 || !procedure.namespace()[0].equals(Procedures.NAMESPACE)) {
      throw PlanError.invalid(
          "there is no procedure " + procedure + ": they are in " + name + "." + Procedures.NAMESPACE);
    }
    return new Procedures(store(), ofServer()).named(procedure.name());
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    boolean isThere = namespace.length == 1 && namespace[0].equals(Procedures.NAMESPACE);
    List<String> names = isThere ? new Procedures(store(), ofServer()).names() : List.of();
    return names.stream().map(each -> Identifier.of(namespace, each)).toArray(Identifier[]::new);
  }

  @Override
  public String[][] listNamespaces() {
    return new String[][] {defaultNamespace()};
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length > 0) {
      loadNamespaceMetadata(namespace);
    }
    return namespace.length == 0 ? listNamespaces() : new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (!isDefault(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
    return Map.of();
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    throw notOffered("create namespaces", "a server of its own");
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw notOffered("alter namespaces", "a server of its own");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw notOffered("drop namespaces", "a server of its own");
  }

  private Map<String, String> ofServer() {
    if (!ofServer.containsKey("uri")) {
      throw new IllegalArgumentException(
          "the catalog " + name + " has no server: set spark.sql.catalog." + name + ".uri, as in "
              + "grpc://127.0.0.1:8815");
    }
    return ofServer;
  }

  private static boolean isDefault(String[] namespace) {
    return namespace.length == 0 || namespace.length == 1 && namespace[0].equals(NAMESPACE);
  }

  private static UnsupportedOperationException notOffered(String what, String instead) {
    return new UnsupportedOperationException("a Nyala catalog does not " + what + "; use " + instead);
  }
}
