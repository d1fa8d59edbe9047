package io.nyala.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.FlightStore;
import io.nyala.flight.StoreException;
import io.nyala.flight.TableServers;
import io.nyala.spark.options.LocalRows;
import io.nyala.spark.options.PlanError;
import io.nyala.spark.tables.Partitioning;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A store's description of a table, as a table: {@code homes.tablets} and {@code homes.history}, its commits. Of
 * several servers, what each says of its own part.
 */
record MetadataTable(String name, String table, FlightStore store) implements SupportsRead {
  private static final String TABLETS = "tablets";
  private static final String HISTORY = "history";
  private static final int LOGICAL_BITS = 12; // a timestamp is microseconds since 1970, and a number

  private static final StructType OF_TABLETS = StructType.fromDDL(
      "tablet INT, server STRING, lower STRING, upper STRING, buckets ARRAY<INT>, live_rows BIGINT, "
          + "bytes_on_disk BIGINT, memory_bytes BIGINT, rowsets INT, delta_files INT, redo_bytes BIGINT, "
          + "undo_bytes BIGINT, dropped_bytes BIGINT, average_rowset_height DOUBLE, rows_read BIGINT, "
          + "rows_written BIGINT, history_from TIMESTAMP, quarantine STRING");
  private static final StructType OF_HISTORY = StructType.fromDDL(
      "timestamp BIGINT, at TIMESTAMP, writer STRING, `transaction` STRING, inserted BIGINT, "
          + "updated BIGINT, deleted BIGINT, operation STRING, `user` STRING");

  /** Returns whether there is a table of this name beside each table of rows. */
  static boolean isNamed(String name) {
    return name.equals(TABLETS) || name.equals(HISTORY);
  }

  @Override
  @SuppressWarnings("deprecation") // columns() uses it
  public StructType schema() {
    return isOfTablets() ? OF_TABLETS : OF_HISTORY;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return () -> LocalRows.of(schema(), rows());
  }

  private boolean isOfTablets() {
    return name.endsWith("." + TABLETS);
  }

  private List<InternalRow> rows() {
    List<InternalRow> found = new ArrayList<>();
    Map<String, String> of = Map.of("table", table);
    try {
      TableServers.of(store).onEach(name, (server, each) -> {
        if (isOfTablets()) {
          each.ask("table_stats", of).path(TABLETS).forEach(tablet -> found.add(tablet(tablet, server)));
        } else {
          each.pages("commits", of).forEach(page -> putCommits(page, found));
        }
      });
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
    return found;
  }

  private static InternalRow tablet(JsonNode said, String server) {
    JsonNode partition = said.path("partition");
    List<Object> buckets = new ArrayList<>();
    partition.path("buckets").forEach(bucket -> buckets.add(bucket.asInt()));
    long floor = said.path("history_floor").asLong();
    return LocalRows.row(
        said.path("tablet").asInt(), server.isEmpty() ? null : server, Partitioning.end(partition.path("lower")),
        Partitioning.end(partition.path("upper")), new GenericArrayData(buckets.toArray()),
        said.path("live_rows").asLong(), said.path("bytes_on_disk").asLong(), said.path("memory_bytes").asLong(),
        said.path("rowsets").asInt(), said.path("delta_files").asInt(), said.path("redo_bytes").asLong(),
        said.path("undo_bytes").asLong(), said.path("dropped_bytes").asLong(),
        said.path("average_rowset_height").asDouble(), said.path("rows_read").asLong(),
        said.path("rows_written").asLong(), floor == 0 ? null : floor >> LOGICAL_BITS,
        said.path("quarantine").asText(null));
  }

  private static void putCommits(JsonNode page, List<InternalRow> found) {
    for (int place = 0; place < page.path("timestamp").size(); place++) {
      long timestamp = page.path("timestamp").get(place).asLong();
      found.add(LocalRows.row(
          timestamp, timestamp >> LOGICAL_BITS, page.path("writer").get(place).asText(null),
          page.path("transaction").get(place).asText(null), page.path("inserted").get(place).asLong(),
          page.path("updated").get(place).asLong(), page.path("deleted").get(place).asLong(),
          page.path("operation").path(place).asText(null), page.path("user").path(place).asText(null)));
    }
  }
}
