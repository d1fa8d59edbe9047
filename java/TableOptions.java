package io.nyala.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Which options a table has: those it was made with, and those of a query. */
final class TableOptions {
  private static final List<String> MOMENTS = List.of("snapshottimestamp", "timestampasof", "versionasof");

  private static final List<String> OF_WRITES = List.of("operation", "ignorenull");

  private TableOptions() {}

  /**
   * Returns the options among the properties of a table. {@code CREATE TABLE ... OPTIONS} keeps each under a prefix
   * too, beside properties of others; {@code load()} hands over options and nothing else.
   */
  static CaseInsensitiveStringMap of(Map<String, String> properties) {
    Map<String, String> kept = new HashMap<>();
    properties.forEach((name, value) -> {
      if (name.startsWith(TableCatalog.OPTION_PREFIX)) {
        kept.put(name.substring(TableCatalog.OPTION_PREFIX.length()), value);
      }
    });
    return new CaseInsensitiveStringMap(kept.isEmpty() ? properties : kept);
  }

  /** Returns a table's options with those of a query over them. The moment that a table stands for stays. */
  static CaseInsensitiveStringMap of(CaseInsensitiveStringMap table, CaseInsensitiveStringMap query) {
    Map<String, String> later = new HashMap<>(query);
    if (MOMENTS.stream().anyMatch(table::containsKey)) {
      later.keySet().removeAll(MOMENTS);
    }
    return PythonSource.with(table, later);
  }

  /** Returns the options that say what statements do, of those of a catalog. */
  static Map<String, String> ofWrites(CaseInsensitiveStringMap options) {
    Map<String, String> kept = new HashMap<>(options);
    kept.keySet().retainAll(OF_WRITES);
    return kept;
  }

  /**
   * Returns the options by which to ask for the schema. That of a table to which statements upsert refuses those that
   * leave columns out, where nothing tells which.
   */
  static CaseInsensitiveStringMap ofSchema(CaseInsensitiveStringMap options) {
    Map<String, String> kept = new HashMap<>(options);
    if (NyalaExtensions.areInUse()) {
      kept.keySet().removeAll(OF_WRITES);
    }
    return new CaseInsensitiveStringMap(kept);
  }

  static boolean isOfChanges(CaseInsensitiveStringMap options) {
    return options.containsKey("startTimestamp") || options.getBoolean("readChangeFeed", false);
  }

  /** Whether the options say themselves at which moment to read. */
  static boolean isPinned(CaseInsensitiveStringMap options) {
    return MOMENTS.stream().anyMatch(options::containsKey) || options.containsKey("endTimestamp");
  }
}
