package io.nyala.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.UUID;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.TableInfo;

/**
 * {@code CREATE TABLE ... AS SELECT} and {@code REPLACE TABLE}, each of which is seen whole or not at all.
 *
 * <p>A table is created under another name, filled, and renamed. The store cannot exchange one table for another in one
 * step: so a table is only replaced by one of the same definition, and then its rows are replaced, by the one commit
 * that writes the new ones.
 */
record StagedTables(StoreTables store, Function<Identifier, NyalaTable> load) {
  private static final int NAME_SHOWN = 40;

  StagedTable create(Identifier table, TableInfo info) throws TableAlreadyExistsException {
    if (store.describe(table.name()).isPresent()) {
      throw new TableAlreadyExistsException(table);
    }
    return created(table, info);
  }

  StagedTable createOrReplace(Identifier table, TableInfo info) {
    JsonNode old = store.describe(table.name()).orElse(null);
    StagedRows made = created(table, info);
    if (old == null) {
      return made;
    }
    JsonNode asked = orDropped(made::abortStagedChanges, () -> store.describe(made.stored()).orElseThrow());
    made.abortStagedChanges();
    if (!definition(asked).equals(definition(old))) {
      throw PlanError.invalid("table " + table.name() + " has another definition, and the store cannot exchange "
          + "tables in one step: use ALTER TABLE, or DROP TABLE and CREATE TABLE; INSERT OVERWRITE replaces all rows");
    }
    return new StagedRows(load.apply(table).filledIn(info.columns()), table.name(), () -> {}, () -> {}, store);
  }

  private StagedRows created(Identifier table, TableInfo info) {
    String name = table.name();
    String shown = name.substring(0, Math.min(name.length(), NAME_SHOWN));
    String other = "_creating_" + shown + "_" + UUID.randomUUID().toString().substring(0, 8);
    Identifier staged = Identifier.of(table.namespace(), other);
    try {
      store.create(staged, TableDefinition.of(other, info));
    } catch (TableAlreadyExistsException | IllegalArgumentException error) {
      throw PlanError.invalid(error.getMessage().replace(other, name));
    }
    Runnable keep = () -> {
      try {
        store.rename(staged, name);
      } catch (Exception error) { // as checked exceptions of Spark
        throw PlanError.<RuntimeException>undeclared(error);
      }
    };
    Runnable drop = () -> store.drop(staged, 0);
    NyalaTable made = orDropped(drop, () -> load.apply(staged).filledIn(info.columns()));
    return new StagedRows(made, other, keep, drop, null);
  }

  /** Returns what a step returns; if it fails, the table that was created for it goes. */
  private static <T> T orDropped(Runnable drop, Supplier<T> step) {
    try {
      return step.get();
    } catch (Exception error) { // as checked exceptions of Spark
      try {
        drop.run();
      } catch (Exception remains) {
        error.addSuppressed(remains);
      }
      throw error;
    }
  }

  /** Returns what two tables have in common that one statement creates twice. */
  private static ObjectNode definition(JsonNode described) {
    ObjectNode kept = described.deepCopy();
    kept.remove(List.of("name", "table_id", "schema_version", "stores"));
    kept.path("columns").forEach(column -> ((ObjectNode) column).remove("id"));
    return kept;
  }
}
