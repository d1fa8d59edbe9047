package io.nyala.spark.options;

import io.nyala.flight.Credentials;
import io.nyala.flight.StoreException;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The options of a table: those it was created with, and those of a query. */
public final class TableOptions {
  private static final List<String> MOMENTS = OptionNames.lower("snapshot");

  private static final List<String> OF_WRITES = OptionNames.lower("operation");

  /** The server, and what shows it who asks: see clients/spark/server.py. */
  private static final List<String> OF_SERVER = OptionNames.lower("server");

  private TableOptions() {}

  /** Returns what the server is shown. Throws an AnalysisException if that does not fit together. */
  public static Credentials credentials(CaseInsensitiveStringMap options) {
    try {
      return Credentials.of(ofServer(options));
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  /** Returns the options that say which server to ask, and as whom. */
  public static Map<String, String> ofServer(CaseInsensitiveStringMap options) {
    Map<String, String> kept = new HashMap<>(options);
    kept.keySet().retainAll(OF_SERVER);
    return kept;
  }

  /**
   * Returns the options among a table's properties. {@code CREATE TABLE ... OPTIONS} also stores each with a prefix,
   * among other properties; {@code load()} passes options only.
   */
  public static CaseInsensitiveStringMap of(Map<String, String> properties) {
    Map<String, String> kept = new HashMap<>();
    properties.forEach((name, value) -> {
      if (name.startsWith(TableCatalog.OPTION_PREFIX)) {
        kept.put(name.substring(TableCatalog.OPTION_PREFIX.length()), value);
      }
    });
    return new CaseInsensitiveStringMap(kept.isEmpty() ? properties : kept);
  }

  /** Returns a table's options, overridden by a query's, except for the moment that the table shows. */
  public static CaseInsensitiveStringMap of(CaseInsensitiveStringMap table, CaseInsensitiveStringMap query) {
    Map<String, String> later = new HashMap<>(query);
    if (MOMENTS.stream().anyMatch(table::containsKey)) {
      later.keySet().removeAll(MOMENTS);
    }
    return PythonSource.with(table, later);
  }

  /** Returns a catalog's options for the operation of statements. */
  public static Map<String, String> ofWrites(CaseInsensitiveStringMap options) {
    Map<String, String> kept = new HashMap<>(options);
    kept.keySet().retainAll(OF_WRITES);
    return kept;
  }

  /**
   * Returns the options for requesting the schema. Without the extensions, the schema of a table to which statements
   * upsert makes Spark reject those that leave columns out.
   */
  public static CaseInsensitiveStringMap ofSchema(CaseInsensitiveStringMap options) {
    Map<String, String> kept = new HashMap<>(options);
    if (SessionExtensions.areInUse()) {
      kept.keySet().removeAll(OF_WRITES);
    }
    return new CaseInsensitiveStringMap(kept);
  }

  public static boolean isOfWrites(CaseInsensitiveStringMap options) {
    return OF_WRITES.stream().anyMatch(options::containsKey);
  }

  /** Returns whether a write has no options but the server, the table and the operation. */
  public static boolean isPlain(CaseInsensitiveStringMap ofWrite) {
    return ofWrite.keySet().stream()
        .allMatch(name -> OF_SERVER.contains(name) || name.equals("table") || name.equals("operation"));
  }

  public static boolean isOfChanges(CaseInsensitiveStringMap options) {
    return options.containsKey("startTimestamp") || options.getBoolean("readChangeFeed", false);
  }

  /** Returns whether the options themselves give the moment to read at. */
  public static boolean isPinned(CaseInsensitiveStringMap options) {
    return MOMENTS.stream().anyMatch(options::containsKey) || options.containsKey("endTimestamp");
  }
}
