package io.nyala.spark.read;

import io.nyala.spark.options.TableOptions;
import io.nyala.spark.tables.StoreTable;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownTopN;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Takes over from Spark what the store does better: column pruning, filters, aggregates, and the first rows, of an order
 * or of any.
 *
 * <p>They become options that users may also set: {@code filter}, {@code aggregate}.
 */
public final class NyalaScanBuilder
    implements SupportsPushDownV2Filters, SupportsPushDownAggregates, SupportsPushDownTopN, SupportsPushDownLimit,
        SupportsPushDownRequiredColumns {
  private final StoreTable table;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final FilterText filterText;
  private final List<Predicate> pushed = new ArrayList<>();
  private final List<String> texts = new ArrayList<>();
  private StructType columns;
  private Measures measures;
  private NyalaScan ofMeasures;
  private FirstRows first;

  public NyalaScanBuilder(StoreTable table, CaseInsensitiveStringMap options) {
    this.table = table;
    this.schema = table.schema();
    this.options = options;
    this.filterText = new FilterText(table);
    this.columns = schema;
  }

  /** Leaves filters on changes to Spark: in the store, a filter on the row decides which changes there are. */
  @Override
  public Predicate[] pushPredicates(Predicate[] predicates) {
    List<Predicate> left = new ArrayList<>();
    for (Predicate predicate : predicates) {
      Optional<String> text = isOfRows() ? filterText.of(predicate) : Optional.empty();
      if (text.isPresent()) {
        pushed.add(predicate);
        texts.add(text.get());
      } else {
        left.add(predicate);
      }
    }
    return left.toArray(Predicate[]::new);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return pushed.toArray(Predicate[]::new);
  }

  /** The store tells whether there are few groups, in the plan of the scan; one of many has several rows for a group. */
  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    Measures asked = isOfRows() ? Measures.of(aggregation, schema).orElse(null) : null;
    ofMeasures = asked == null ? null : scan(asked);
    return asked != null && ofMeasures.isComplete();
  }

  /** Spark has asked before whether the store completes the aggregation. */
  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    Measures asked = isOfRows() ? Measures.of(aggregation, schema).orElse(null) : null;
    measures = asked != null && (asked.canBeCombined() || ofMeasures.isComplete()) ? asked : null;
    return measures != null;
  }

  /** Spark asks this if the store has all filters. */
  @Override
  public boolean pushTopN(SortOrder[] orders, int limit) {
    first = isOfRows() && measures == null ? FirstRows.of(orders, limit, schema).orElse(null) : null;
    return first != null;
  }

  /** Spark asks this if the store has all filters. */
  @Override
  public boolean pushLimit(int limit) {
    first = isOfRows() && measures == null ? FirstRows.of(limit).orElse(null) : null;
    return first != null;
  }

  @Override
  public boolean isPartiallyPushed() {
    return true; // Spark puts rows in order and counts them
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = new StructType(Stream.of(required.fields()).map(this::whole).toArray(StructField[]::new));
  }

  /** Returns a column with all fields of its structs: Spark leaves out those that it does not need, the store none. */
  private StructField whole(StructField column) {
    return schema.getFieldIndex(column.name()).isDefined() ? schema.apply(column.name()) : column;
  }

  @Override
  public Scan build() {
    return measures == null ? scan(null) : ofMeasures;
  }

  private NyalaScan scan(Measures asked) {
    return new NyalaScan(table, columns, options, new Pushed(List.copyOf(texts), asked, first));
  }

  private boolean isOfRows() {
    return !TableOptions.isOfChanges(options) && !options.containsKey("aggregate");
  }
}
