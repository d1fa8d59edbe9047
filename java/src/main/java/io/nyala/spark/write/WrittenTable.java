package io.nyala.spark.write;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.BoundTable;
import io.nyala.flight.Credentials;
import io.nyala.flight.FlightStore;
import io.nyala.flight.ScanParts;
import io.nyala.flight.StagedTransaction;
import io.nyala.flight.StoreException;
import io.nyala.flight.StoreIdentity;
import io.nyala.spark.options.PlanError;
import io.nyala.spark.options.QueryMoment;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.tables.StoreTables;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table of a store that a statement writes to from Java: where it is, its key, and whether the store numbers rows. */
public record WrittenTable(
    String uri, Credentials credentials, BoundTable table, List<String> key, boolean isNumbered) {
  /**
   * Asks the store that {@code options} name, those of the table and of the write. Throws an exception if {@code what}
   * cannot be done to the table.
   */
  public static WrittenTable of(String name, CaseInsensitiveStringMap options, String what) {
    ReadOptions.checkWhole(name, options, what);
    return alone(options).orElseThrow(() -> new UnsupportedOperationException(
        what + " is one commit, and " + name + " may be on several servers or processes, of which each commits "
            + "by itself: use df.write with the option operation or operationColumn"));
  }

  /** Asks the store; empty unless one server, of one process, has the whole table: several commit one by one. */
  static Optional<WrittenTable> alone(CaseInsensitiveStringMap options) {
    String uri = ReadOptions.uri(options);
    Credentials credentials = TableOptions.credentials(options);
    FlightStore store = FlightStore.at(uri, credentials);
    String table = ReadOptions.table(options);
    try {
      if (!new StoreTables(store).isAlone()) {
        return Optional.empty();
      }
      List<String> key = new ArrayList<>();
      JsonNode described = store.ask("describe_table", Map.of("table", table));
      described.path("primary_key").forEach(column -> key.add(column.asText()));
      boolean isNumbered = !described.path("unique_key").asBoolean(true);
      BoundTable bound = new BoundTable(table, described.path("table_id").asLong());
      return Optional.of(new WrittenTable(uri, credentials, bound, List.copyOf(key), isNumbered));
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  /** Asks the store whether a table has partitions. */
  static boolean isPartitioned(CaseInsensitiveStringMap options) {
    try {
      FlightStore store = FlightStore.at(ReadOptions.uri(options), TableOptions.credentials(options));
      return !store.ask("describe_table", Map.of("table", ReadOptions.table(options))).path("partitions").isEmpty();
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  FlightStore store(ScanParts.Moment moment) {
    return FlightStore.at(uri, credentials, moment == null ? StoreIdentity.UNKNOWN : moment.store());
  }

  /** Returns the moment at which the query of this thread reads the store. */
  ScanParts.Moment moment() {
    try {
      return QueryMoment.current().at(uri, () -> FlightStore.at(uri, credentials).now());
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  /** Returns where tasks stage what, as a new transaction. */
  WriteTarget target(ScanParts.Moment moment, WriteTarget.Columns columns) {
    StoreIdentity identity = moment == null ? StoreIdentity.UNKNOWN : moment.store();
    return new WriteTarget(uri, credentials, identity, StagedTransaction.create(), table, columns);
  }
}
