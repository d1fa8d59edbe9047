package io.nyala.spark.tables;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.FlightStore;
import io.nyala.flight.Json;
import io.nyala.flight.StoreException;
import io.nyala.flight.TableServers;
import io.nyala.spark.options.PlanError;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.TableChange;

/** Creates, changes and drops tables of a store. Errors of the store, such as missing grants, are passed on. */
public record StoreTables(FlightStore store) {
  public void create(Identifier table, ObjectNode definition) throws TableAlreadyExistsException {
    try {
      TableServers.of(store).create(definition);
    } catch (StoreException error) {
      if (error.is(StoreException.ALREADY_PRESENT)) {
        throw new TableAlreadyExistsException(table);
      }
      throw PlanError.thrown(error);
    }
  }

  /** Applies all changes of one statement, or none. */
  public void alter(Identifier table, TableChange... changes) throws NoSuchTableException {
    try {
      JsonNode steps = AlterSteps.of(described(table.name()), changes);
      if (!steps.isEmpty()) {
        TableServers.of(store).alter(table.name(), steps);
      }
    } catch (StoreException error) {
      throw missing(table, error);
    } catch (IllegalArgumentException error) {
      throw PlanError.invalid(error.getMessage());
    }
  }

  public void rename(Identifier from, String to) throws NoSuchTableException, TableAlreadyExistsException {
    rename(from, to, Map.of("op", "rename", "to", to));
  }

  /** Lets a table take the place of the one with an id, which can be recalled for some seconds. */
  public void replace(Identifier from, String to, long id, long keepSeconds)
      throws NoSuchTableException, TableAlreadyExistsException {
    rename(from, to, Map.of("op", "rename", "to", to, "replaces", id, "keep_seconds", keepSeconds));
  }

  private void rename(Identifier from, String to, Map<String, Object> step)
      throws NoSuchTableException, TableAlreadyExistsException {
    JsonNode steps = Json.tree(List.of(step));
    try {
      TableServers.of(store).alter(from.name(), steps);
    } catch (StoreException error) {
      if (error.is(StoreException.ALREADY_PRESENT)) {
        throw new TableAlreadyExistsException(Identifier.of(from.namespace(), to));
      }
      throw missing(from, error);
    }
  }

  /** Whether the server is one process, and shares its tables with no other. */
  public boolean isAlone() {
    try {
      JsonNode health = store.holderHealth();
      boolean isShared = health.hasNonNull("server") && store.ask("placement", null).path("servers").size() > 1;
      return !isShared && health.path("processes").isEmpty();
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  /** Drops a table, which can be recalled for some seconds; returns whether there was one. */
  public boolean drop(Identifier table, long keepSeconds) {
    try {
      TableServers.of(store).drop(table.name(), keepSeconds);
      return true;
    } catch (StoreException error) {
      if (error.is(StoreException.NOT_FOUND)) {
        return false;
      }
      throw PlanError.thrown(error);
    }
  }

  /** Deletes all rows, by one commit on each server. */
  public void truncate(String table) {
    try {
      // The store knows a transaction again, so that it may be sent twice.
      String transaction = "spark-" + UUID.randomUUID();
      Object commit = Map.of("transaction", transaction, "truncate", List.of(table));
      TableServers.of(store).onEach("truncate", (name, server) -> server.ask("commit_transaction", commit));
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  /** Returns what the store says of a table; empty if there is none. */
  public Optional<JsonNode> describe(String table) {
    try {
      return Optional.of(described(table));
    } catch (StoreException error) {
      if (error.is(StoreException.NOT_FOUND)) {
        return Optional.empty();
      }
      throw PlanError.thrown(error);
    }
  }

  private JsonNode described(String table) {
    return store.ask("describe_table", Map.of("table", table));
  }

  private static RuntimeException missing(Identifier table, StoreException error) throws NoSuchTableException {
    if (error.is(StoreException.NOT_FOUND)) {
      throw new NoSuchTableException(table);
    }
    return PlanError.thrown(error);
  }
}
