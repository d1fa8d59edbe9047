package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;

/**
 * The servers that share tables, or the one that shares them with none. A table is created, altered and dropped on one
 * after the other, as {@code clients/cluster/definitions.py} does: there is no transaction over servers, and repeating
 * what did not reach all of them applies it on the others.
 */
public final class TableServers {
  private static final List<String> OWN = List.of("table_id", "name", "stores");

  private final Map<String, FlightStore> servers = new LinkedHashMap<>();

  private TableServers() {}

  /** Returns the servers that share the tables of one of them. Several processes behind one address are one. */
  public static TableServers of(FlightStore one) {
    TableServers found = new TableServers();
    if (!one.holderHealth().hasNonNull("server")) {
      found.servers.put("", one);
      return found;
    }
    one.ask("placement", null).path("servers").properties().forEach(server -> {
      List<String> locations = new ArrayList<>();
      server.getValue().forEach(location -> locations.add(location.asText()));
      found.servers.put(server.getKey(), FlightStore.at(String.join(",", locations), one.credentials()));
    });
    return found;
  }

  public boolean isOne() {
    return servers.size() == 1;
  }

  /** Creates a table on the servers that lack it. */
  public void create(ObjectNode definition) {
    if (isOne()) {
      only().change("create_table", definition);
      return;
    }
    String table = definition.path("name").asText();
    if (isWhole(table)) {
      throw new StoreException(StoreException.ALREADY_PRESENT, "table '" + table + "' already exists");
    }
    ObjectNode lacking = definition.deepCopy().put("if_not_exists", true);
    Map<String, JsonNode> made = new LinkedHashMap<>();
    onEach("create_table", (name, server) -> made.put(name, server.change("create_table", lacking)));
    checkSame(table, made);
  }

  /** Applies steps to a table; where an attempt did not reach all servers, on those where it is still unaltered. */
  public void alter(String table, JsonNode steps) {
    ObjectNode asked = Json.object().put("name", table);
    asked.set("steps", steps);
    if (isOne()) {
      only().change("alter_table", asked);
      return;
    }
    Map<String, JsonNode> described = described(table);
    checkNewRanges(table, steps, described);
    int oldest = described.values().stream().mapToInt(each -> each.path("schema_version").asInt()).min().orElse(0);
    asked.put("if_version", oldest);
    Map<String, JsonNode> done = new LinkedHashMap<>();
    onEach("alter_table", (name, server) -> {
      if (described.containsKey(name) && described.get(name).path("schema_version").asInt() == oldest) {
        done.put(name, server.change("alter_table", asked));
      }
    });
    checkSame(table, done);
  }

  /** Drops a table on the servers that have it; for some seconds it can be recalled. */
  public void drop(String table, long keepSeconds) {
    Map<String, StoreException> missing = new LinkedHashMap<>();
    onEach("drop_table", (name, server) -> {
      try {
        server.change("drop_table", Map.of("table", table, "keep_seconds", keepSeconds));
      } catch (StoreException error) {
        if (!error.is(StoreException.NOT_FOUND)) {
          throw error;
        }
        missing.put(name, error); // an earlier attempt may have been there
      }
    });
    if (missing.size() == servers.size()) {
      throw missing.values().iterator().next();
    }
  }

  /** Returns what each server that has a table says of it. Throws NOT_FOUND if none has. */
  public Map<String, JsonNode> described(String table) {
    Map<String, JsonNode> found = new LinkedHashMap<>();
    StoreException missing = null;
    for (Map.Entry<String, FlightStore> server : servers.entrySet()) {
      try {
        found.put(server.getKey(), server.getValue().ask("describe_table", Map.of("table", table)));
      } catch (StoreException error) {
        if (!error.is(StoreException.NOT_FOUND)) {
          throw error;
        }
        missing = error;
      }
    }
    if (found.isEmpty()) {
      throw missing;
    }
    return found;
  }

  /** Does something on each server, in order; an error says on which it was done before. */
  public void onEach(String what, BiConsumer<String, FlightStore> act) {
    List<String> done = new ArrayList<>();
    for (Map.Entry<String, FlightStore> server : servers.entrySet()) {
      try {
        act.accept(server.getKey(), server.getValue());
      } catch (StoreException error) {
        throw done.isEmpty() ? error
            : error.with("; " + what + " was already done on " + String.join(", ", done) + ": repeat it for others");
      }
      done.add(server.getKey());
    }
  }

  private FlightStore only() {
    return servers.values().iterator().next();
  }

  /** Rejects a range that might belong to a server newer than the table: it lacks the table. */
  private void checkNewRanges(String table, JsonNode steps, Map<String, JsonNode> described) {
    List<String> lacking = servers.keySet().stream().filter(name -> !described.containsKey(name)).toList();
    for (JsonNode step : steps) {
      if (!lacking.isEmpty() && step.path("op").asText().equals("add_range_partition")) {
        throw new StoreException(StoreException.INVALID_ARGUMENT, "table '" + table + "' is not on "
            + String.join(", ", lacking) + ", which may get a tablet of the new range: use Table.alter of the client");
      }
    }
  }

  /** Returns whether the servers that have a table have all of its tablets. */
  private boolean isWhole(String table) {
    Set<JsonNode> here = new HashSet<>();
    Set<JsonNode> all = new HashSet<>();
    for (FlightStore server : servers.values()) {
      try {
        for (JsonNode tablet : server.ask("tablets", Map.of("table", table)).path("tablets")) {
          all.add(tablet.path("partition"));
          if (!tablet.hasNonNull("server")) {
            here.add(tablet.path("partition"));
          }
        }
      } catch (StoreException error) {
        if (!error.is(StoreException.NOT_FOUND)) {
          throw error;
        }
      }
    }
    return !all.isEmpty() && here.equals(all);
  }

  private static void checkSame(String table, Map<String, JsonNode> described) {
    JsonNode first = null;
    for (JsonNode each : described.values()) {
      ObjectNode common = ((ObjectNode) each).deepCopy().remove(OWN);
      if (first != null && !first.equals(common)) {
        throw new StoreException("CONFLICT",
            "table '" + table + "' differs between the servers " + String.join(", ", described.keySet()));
      }
      first = common;
    }
  }
}
