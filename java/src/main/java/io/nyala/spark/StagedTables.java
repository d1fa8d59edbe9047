package io.nyala.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.spark.options.PlanError;
import io.nyala.spark.tables.StoreTables;
import io.nyala.spark.tables.TableDefinition;
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
 * <p>A table is created under another name, filled, and renamed; if it takes the place of another, that is dropped in the
 * same step, and can be recalled for {@code keepSeconds}. Where the definition stays, the table stays too, with its
 * history, and its rows are replaced by the one commit that writes the new ones.
 */
record StagedTables(StoreTables store, Function<Identifier, NyalaTable> load, long keepSeconds) {
  private static final int NAME_SHOWN = 40;

  StagedTable create(Identifier table, TableInfo info) throws TableAlreadyExistsException {
    if (store.describe(table.name()).isPresent()) {
      throw new TableAlreadyExistsException(table);
    }
    return created(table, info, null);
  }

  StagedTable createOrReplace(Identifier table, TableInfo info) {
    JsonNode old = store.describe(table.name()).orElse(null);
    StagedRows made = created(table, info, old);
    if (old == null) {
      return made;
    }
    JsonNode asked = orDropped(made::abortStagedChanges, () -> store.describe(made.stored()).orElseThrow());
    boolean isSame = definition(asked).equals(definition(old));
    if (!isSame && store.isAlone()) {
      return made;
    }
    made.abortStagedChanges();
    if (!isSame) {
      throw PlanError.invalid("table " + table.name() + " has another definition, and several servers or processes "
          + "cannot exchange tables in one step: use ALTER TABLE, or DROP TABLE and CREATE TABLE");
    }
    return new StagedRows(load.apply(table).filledIn(info.columns()), table.name(), () -> {}, () -> {}, store);
  }

  /** Creates a table that takes the place of {@code old}, unless that is null. */
  private StagedRows created(Identifier table, TableInfo info, JsonNode old) {
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
        if (old == null) {
          store.rename(staged, name);
        } else {
          store.replace(staged, name, old.path("table_id").asLong(), keepSeconds);
        }
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
