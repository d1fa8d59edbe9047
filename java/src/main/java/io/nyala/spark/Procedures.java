package io.nyala.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.FlightStore;
import io.nyala.flight.Json;
import io.nyala.flight.StoreException;
import io.nyala.flight.TableServers;
import io.nyala.spark.options.CellJson;
import io.nyala.spark.options.LocalRows;
import io.nyala.spark.options.NearestName;
import io.nyala.spark.options.PlanError;
import io.nyala.spark.options.TableProperties;
import io.nyala.spark.tables.Partitioning;
import io.nyala.spark.tables.PythonJob;
import io.nyala.spark.tables.StoreProcedure;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.types.StructType;

/** {@code CALL nyala.system.compact('homes')} and others: what the store does by one action. */
final class Procedures {
  static final String NAMESPACE = "system";
  private static final String DROP_RANGE = "drop_range_partition";

  private final FlightStore store;
  private final Map<String, String> server;
  private final Map<String, StoreProcedure> all = new LinkedHashMap<>();

  /** {@code server} are the options of the catalog that say where the store is, and what it is shown. */
  Procedures(FlightStore store, Map<String, String> server) {
    this.store = store;
    this.server = server;
    ProcedureParameter table = StoreProcedure.needed("table");
    put("compact", "Merge the files of a table", "op STRING, rows BIGINT, bytes_written BIGINT, bytes_freed BIGINT",
        of -> maintained(of.get(0), of.get(1)), table, StoreProcedure.optional("op", "'compact'"));
    put("restore", "Take a table back to a moment", "rows BIGINT, applied BIGINT, timestamp BIGINT",
        of -> restored(of.get(0), of.get(1)), table, StoreProcedure.needed("as_of"));
    put("recall_table", "Bring back a table that was dropped to be kept for a time", "table STRING",
        of -> recalled(of.get(0), of.get(1)), table, StoreProcedure.optional("new_name", "NULL"));
    put("checkpoint", "Copy the store into a directory of its machine",
        "directory STRING, timestamp BIGINT, files BIGINT, bytes BIGINT", of -> copied(of.get(0)),
        StoreProcedure.needed("directory"));
    put("backup", "Back up a table: in full the first time, then what has changed",
        "kind STRING, folder STRING, until BIGINT, rows BIGINT, bytes BIGINT", of -> backedUp(of),
        table, StoreProcedure.needed("directory"), StoreProcedure.optional("force_full", "'false'"));
    put("restore_backup", "Make a table of its newest backup", "table STRING, until BIGINT, rows BIGINT",
        of -> madeOfBackup(of), table, StoreProcedure.needed("directory"), StoreProcedure.optional("new_name", "NULL"));
    ProcedureParameter lower = StoreProcedure.optional("lower", "NULL");
    ProcedureParameter upper = StoreProcedure.optional("upper", "NULL");
    put("add_range_partition", "Add a range to a table", "range STRING",
        of -> ranges("add_range_partition", of), table, lower, upper);
    put(DROP_RANGE, "Drop a range of a table, and its rows", "range STRING",
        of -> ranges(DROP_RANGE, of), table, lower, upper);
    put("split_partition", "Split the range of a table that has a value", "range STRING",
        of -> ranges("split_partition", of), table, StoreProcedure.needed("at"));
  }

  List<String> names() {
    return List.copyOf(all.keySet());
  }

  StoreProcedure named(String name) {
    StoreProcedure found = all.get(name);
    if (found == null) {
      String near = NearestName.of(name, names()).map(each -> ", did you mean " + each + "?").orElse("");
      throw PlanError.invalid("there is no procedure " + NAMESPACE + "." + name
          + (near.isEmpty() ? "; there are " + String.join(", ", names()) : near));
    }
    return found;
  }

  private interface Body {
    List<InternalRow> of(List<String> given);
  }

  private void put(String name, String about, String shown, Body body, ProcedureParameter... parameters) {
    all.put(name, new StoreProcedure(name, about, parameters, StructType.fromDDL(shown), body::of));
  }

  private List<InternalRow> maintained(String table, String op) {
    long[] done = new long[3];
    TableServers.of(store).onEach(op, (name, server) -> {
      JsonNode said = server.change("maintain", Map.of("table", table, "op", op));
      done[0] += said.path("rows").asLong();
      done[1] += said.path("bytes_written").asLong();
      done[2] += said.path("bytes_freed").asLong();
    });
    return List.of(LocalRows.row(op, done[0], done[1], done[2]));
  }

  private List<InternalRow> restored(String table, String asOf) {
    if (!TableServers.of(store).isOne()) {
      throw new IllegalArgumentException(
          "several servers share the table, whose tablets must not move meanwhile: use Table.restore of the client");
    }
    boolean isTimestamp = !asOf.isEmpty() && asOf.chars().allMatch(Character::isDigit);
    ObjectNode asked = Json.object().put("table", table).put("kind", "restore");
    asked.set("as_of", isTimestamp ? CellJson.of(asOf, "int64") : Json.tree(asOf));
    asked.put("writer", "spark-" + UUID.randomUUID()).put("seq", 0); // so that it may be sent twice
    JsonNode said = store.ask("execute", asked);
    if (said.path("error_count").asLong() > 0) {
      JsonNode first = said.path("errors").path(0);
      throw new StoreException(first.path("code").asText(), first.path("message").asText());
    }
    return List.of(LocalRows.row(
        said.path("rows").asLong(), said.path("applied").asLong(), said.path("timestamp").asLong()));
  }

  private List<InternalRow> recalled(String table, String newName) {
    ObjectNode asked = Json.object().put("table", table);
    if (newName != null) {
      asked.put("new_name", newName);
    }
    TableServers.of(store).onEach("recall_table", (name, server) -> server.change("recall_table", asked));
    return List.of(LocalRows.row(newName == null ? table : newName));
  }

  private List<InternalRow> copied(String directory) {
    JsonNode said = store.change("checkpoint", Map.of("directory", directory));
    return List.of(LocalRows.row(
        said.path("directory").asText(), said.path("timestamp").asLong(), said.path("files").asLong(),
        said.path("bytes").asLong()));
  }

  private List<InternalRow> backedUp(List<String> given) {
    List<String> arguments = new ArrayList<>(given.subList(0, 2));
    if (Boolean.parseBoolean(given.get(2))) {
      arguments.add("--force-full");
    }
    JsonNode said = PythonJob.run(server, "backup", arguments);
    return List.of(LocalRows.row(
        said.path("kind").asText(), said.path("folder").asText(), said.path("until").asLong(),
        said.path("rows").asLong(), said.path("bytes").asLong()));
  }

  private List<InternalRow> madeOfBackup(List<String> given) {
    List<String> arguments = new ArrayList<>(given.subList(0, 2));
    if (given.get(2) != null) {
      arguments.addAll(List.of("--as", given.get(2)));
    }
    JsonNode said = PythonJob.run(server, "restore", arguments);
    return List.of(LocalRows.row(
        said.path("table").asText(), said.path("until").asLong(), said.path("rows_written").asLong()));
  }

  /** Rejects to drop the range of all rows, which a table has that was not divided, by leaving out its ends. */
  private static void checkEnds(String step, String table, JsonNode asked) {
    if (step.equals(DROP_RANGE) && asked.path("lower").isEmpty() && asked.path("upper").isEmpty()) {
      throw new IllegalArgumentException(step + " needs lower, upper or both: without ends it would drop all rows of "
          + table + "; TRUNCATE TABLE does that");
    }
  }

  /** Changes the ranges of a table; returns those that it has then. */
  private List<InternalRow> ranges(String step, List<String> given) {
    String table = given.get(0);
    TableServers servers = TableServers.of(store);
    JsonNode described = servers.described(table).values().iterator().next();
    List<String> types = Partitioning.rangeTypes(described);
    ObjectNode asked = Json.object().put("op", step);
    if (given.size() == 2) {
      asked.set("at", Partitioning.values(given.get(1), types, "at"));
    } else {
      asked.set("lower", Partitioning.values(given.get(1), types, "lower"));
      asked.set("upper", Partitioning.values(given.get(2), types, "upper"));
      checkEnds(step, table, asked);
    }
    servers.alter(table, Json.tree(List.of(asked)));
    List<InternalRow> found = new ArrayList<>();
    for (JsonNode level : servers.described(table).values().iterator().next().path("partitions")) {
      level.path(TableProperties.BOUNDS).forEach(bound ->
          found.add(LocalRows.row(Partitioning.range(bound.path("lower"), bound.path("upper")))));
    }
    return found;
  }
}
