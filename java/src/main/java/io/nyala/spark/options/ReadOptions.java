package io.nyala.spark.options;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.Json;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of {@code spark.read}, as the JSON of a scan. Unknown ones are rejected, as in
 * {@code clients/spark/options.py}: ignoring a misspelt {@code snapshotTimestmp} would read the wrong rows.
 */
public final class ReadOptions {
  private static final String SPLIT_BYTES = "67108864"; // a few tasks for each core for a large table
  private static final List<String> SNAPSHOTS = OptionNames.of("snapshot");
  private static final List<String> KNOWN = OptionNames.of("server", "whole", "part", "snapshot", "operation");
  private static final List<String> OF_SPARK = OptionNames.lower("spark");
  private static final List<String> OF_STREAMS = OptionNames.of("stream");
  /** What selects some rows or columns, or another moment: a view with these cannot be written to. */
  private static final List<String> OF_PARTS = OptionNames.of("part", "snapshot");

  private ReadOptions() {}

  /** Returns what the options say of a scan: all but its columns. */
  public static ObjectNode scan(CaseInsensitiveStringMap options) {
    checkNames(options);
    ObjectNode scan = Json.object();
    scan.put("table", table(options));
    if (options.containsKey("filter")) {
      scan.put("where", options.get("filter"));
    }
    scan.put("split_bytes", number("splitSizeBytes", options.getOrDefault("splitSizeBytes", SPLIT_BYTES), 1));
    if (options.containsKey("aggregate")) {
      scan.set("aggregate", measures(options));
    }
    putMoment(scan, options);
    return scan;
  }

  /** Guesses whether the options are those of a stream: Spark does not say it. */
  public static boolean isOfStream(CaseInsensitiveStringMap options) {
    boolean isOfFeed = options.containsKey("readChangeFeed") && !options.containsKey("startTimestamp");
    return isOfFeed || OF_STREAMS.stream().anyMatch(options::containsKey);
  }

  public static boolean isOfWholeTable(CaseInsensitiveStringMap options) {
    return OF_PARTS.stream().noneMatch(options::containsKey);
  }

  /** Throws an exception if {@code what} cannot be done to a part of a table, its changes or its past. */
  public static void checkWhole(String name, CaseInsensitiveStringMap options, String what) {
    if (TableOptions.isOfChanges(options) || !isOfWholeTable(options)) {
      throw new UnsupportedOperationException(
          what + " needs a whole table as it is now, and " + name + " is a part of one, its changes or its past");
    }
  }

  public static String uri(CaseInsensitiveStringMap options) {
    return given(options, "uri", "grpc://127.0.0.1:8815");
  }

  private static void putMoment(ObjectNode scan, CaseInsensitiveStringMap options) {
    List<String> snapshots = SNAPSHOTS.stream().filter(options::containsKey).toList();
    if (snapshots.size() > 1) {
      throw invalid(String.join(" and ", snapshots) + " exclude each other: keep one of them");
    }
    if (!options.containsKey("startTimestamp")) {
      for (String name : List.of("endTimestamp", "readChangeFeed", "beforeValues")) {
        if (options.containsKey(name) && !"false".equalsIgnoreCase(options.get(name))) {
          throw invalid(name + " applies to changes only: set startTimestamp too");
        }
      }
      snapshots.forEach(name -> scan.set("as_of", Json.tree(moment(name, options.get(name)))));
      return;
    }
    for (String name : snapshots) {
      throw invalid("give " + name + " or startTimestamp, not both: for the end of a read from startTimestamp use endTimestamp");
    }
    ObjectNode changes = scan.putObject("changes");
    changes.set("since", Json.tree(moment("startTimestamp", options.get("startTimestamp"))));
    if (options.containsKey("endTimestamp")) {
      changes.set("until", Json.tree(moment("endTimestamp", options.get("endTimestamp"))));
    }
    changes.put("before", options.getBoolean("beforeValues", false));
    changes.put("every", options.getBoolean("readChangeFeed", false));
  }

  /** Returns a moment as a scan has it: a timestamp of the store as a number, ISO 8601 as text. */
  private static Object moment(String name, String text) {
    boolean isNumber = !text.isBlank() && text.strip().chars().allMatch(Character::isDigit);
    return isNumber || name.equals("versionAsOf") ? (Object) number(name, text, 0) : text;
  }

  public static long number(String name, String text, long least) {
    try {
      long number = Long.parseLong(text.strip());
      if (number >= least) {
        return number;
      }
    } catch (NumberFormatException notOne) {
      // said below
    }
    throw invalid("option " + name + " is '" + text + "': it must be a whole number, at least " + least);
  }

  private static JsonNode measures(CaseInsensitiveStringMap options) {
    for (String other : List.of("columns", "startTimestamp")) {
      if (options.containsKey(other)) {
        throw invalid("aggregate cannot be combined with " + other + ": an aggregate covers all rows that match");
      }
    }
    try {
      return Json.read(options.get("aggregate"));
    } catch (JsonProcessingException error) {
      throw invalid("option aggregate is not valid JSON: " + error.getOriginalMessage());
    }
  }

  public static String table(CaseInsensitiveStringMap options) {
    if (options.containsKey("paths")) {
      throw invalid("load() takes one table; read each table separately and combine them with union()");
    }
    String path = options.get("path");
    String table = options.get("table");
    if (path != null && table != null && !path.equals(table)) {
      throw invalid("load() or save() names the table '" + path + "', but option table names '" + table + "'");
    }
    return path == null ? given(options, "table", "flights") : path;
  }

  private static String given(CaseInsensitiveStringMap options, String name, String example) {
    String value = options.getOrDefault(name, "");
    if (value.isEmpty()) {
      throw invalid("option '" + name + "' is missing, as in .option('" + name + "', '" + example + "')");
    }
    return value;
  }

  private static void checkNames(CaseInsensitiveStringMap options) {
    Map<String, String> known = new TreeMap<>();
    KNOWN.forEach(name -> known.put(name.toLowerCase(Locale.ROOT), name));
    for (String name : options.keySet()) {
      if (!known.containsKey(name) && !OF_SPARK.contains(name)) {
        throw invalid("unknown read option '" + name + "'" + nearest(name) + " known: " + String.join(", ", KNOWN));
      }
    }
  }

  private static String nearest(String name) {
    return NearestName.of(name, KNOWN).map(each -> ", did you mean " + each + "?").orElse(";");
  }

  private static IllegalArgumentException invalid(String why) {
    return new IllegalArgumentException(why);
  }
}
