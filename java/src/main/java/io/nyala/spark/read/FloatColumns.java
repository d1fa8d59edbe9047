package io.nyala.spark.read;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.MissingNode;
import io.nyala.flight.FlightStore;
import io.nyala.flight.StoreException;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.tables.StoreTable;
import java.util.HashSet;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.arrow.memory.util.Float16;

/**
 * The columns of a table that are floats for Spark. In the store some may be half floats, and there the store rounds a
 * literal to the nearest half (docs/filters.md).
 */
final class FloatColumns {
  private final StoreTable table;
  /** The names of the columns of 32 bits, in lower case; null: the store was not asked yet. */
  private Set<String> whole;

  FloatColumns(StoreTable table) {
    this.table = table;
  }

  /** Whether a column compares with this number itself. Asks the store only of a number that no half float is. */
  boolean keeps(String column, float number) {
    if (Float16.toFloat(Float16.toFloat16(number)) == number) {
      return true;
    }
    if (whole == null) {
      whole = described();
    }
    return whole.contains(column.toLowerCase(Locale.ROOT));
  }

  private Set<String> described() {
    Set<String> found = new HashSet<>();
    Set<String> others = new HashSet<>();
    for (JsonNode column : columns()) {
      boolean isFloat = column.path("type").asText().equals("float");
      (isFloat ? found : others).add(column.path("name").asText().toLowerCase(Locale.ROOT));
    }
    found.removeAll(others); // names may differ in case alone
    return found;
  }

  /** Returns the descriptions of the columns; none if the store cannot say: then Spark compares. */
  private JsonNode columns() {
    if (table.about() != null) {
      return table.about().described().path("columns");
    }
    try {
      FlightStore store = FlightStore.at(ReadOptions.uri(table.options()), TableOptions.credentials(table.options()));
      return store.ask("describe_table", Map.of("table", ReadOptions.table(table.options()))).path("columns");
    } catch (StoreException error) {
      return MissingNode.getInstance();
    }
  }
}
