package io.nyala.spark;

import io.nyala.flight.Credentials;
import io.nyala.flight.FlightStore;
import io.nyala.flight.StoreException;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The tables of a store in SQL: {@code nyala.default.homes}, and {@code nyala.default.homes.changes}, the change feed.
 *
 * <p>{@code spark.sql.catalog.nyala} names this class, {@code spark.sql.catalog.nyala.uri} the server, {@code .token},
 * {@code .tlsRoots} and so on what it is shown, and {@code .operation} the operation of statements, by default
 * {@code insert}. Tables cannot be created or altered here.
 */
public final class NyalaCatalog implements TableCatalog, SupportsNamespaces {
  private static final String NAMESPACE = "default";
  private static final String CHANGES = "changes";

  private String name;
  private Map<String, String> ofServer;
  private Map<String, String> ofWrites;

  @Override
  public void initialize(String catalogName, CaseInsensitiveStringMap options) {
    name = catalogName;
    ofServer = TableOptions.ofServer(options);
    ofWrites = TableOptions.ofWrites(options);
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
      FlightStore store = FlightStore.at(ofServer().get("uri"), Credentials.of(ofServer()));
      store.ask("tables", null).path("tables")
          .forEach(table -> tables.add(Identifier.of(defaultNamespace(), table.asText())));
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
    return tables.toArray(Identifier[]::new);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
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

  private Table load(Identifier table, Map<String, String> more) throws NoSuchTableException {
    Map<String, String> options = new HashMap<>(more);
    options.putAll(ofServer());
    String[] namespace = table.namespace();
    if (isDefault(namespace)) {
      options.put("table", table.name());
      options.putAll(ofWrites);
    } else if (namespace.length == 2 && namespace[0].equals(NAMESPACE) && table.name().equals(CHANGES)) {
      options.put("table", namespace[1]);
      options.put("readChangeFeed", "true");
    } else {
      throw new NoSuchTableException(table);
    }
    StructType schema = TableColumns.ofTable(TableOptions.ofSchema(new CaseInsensitiveStringMap(options)))
        .orElseThrow(() -> new NoSuchTableException(table));
    String where = String.join(".", namespace.length == 0 ? defaultNamespace() : namespace);
    String fullName = name + "." + where + "." + table.name();
    return new NyalaTable(fullName, schema, new CaseInsensitiveStringMap(options), true);
  }

  @Override
  public Table createTable(Identifier table, TableInfo info) {
    throw notOffered("create tables", "Database.create_table or `nyala table create`");
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    throw notOffered("alter tables", "Table.alter or `nyala table alter`");
  }

  @Override
  public boolean dropTable(Identifier table) {
    throw notOffered("drop tables", "Database.drop_table or `nyala table drop`");
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw notOffered("rename tables", "Table.alter or `nyala table alter`");
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
