package io.nyala.spark;

import io.nyala.flight.Json;
import io.nyala.flight.ScanParts;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One scan of one query: planned when it runs, and read by its tasks, without Python. Micro-batches of a stream are
 * those of the Python data source.
 */
final class NyalaScan implements SupportsReportStatistics, SupportsRuntimeV2Filtering {
  private static final int JOIN_FILTER_MAX = 32 << 10; // longer ones than 64 KiB are read by one task (docs/flight.md)

  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap given;
  private final Pushed pushed;
  private final QueryMoment moment;
  private CaseInsensitiveStringMap options;
  private String filterText;
  private Statistics statistics;
  private ScanParts latest; // whichever: all have the same columns
  private boolean isStream;

  NyalaScan(String name, StructType columns, CaseInsensitiveStringMap given, Pushed pushed) {
    this.name = name;
    this.schema = pushed.measures() == null ? columns : pushed.measures().schema();
    this.given = given;
    this.pushed = pushed;
    setFilters(pushed.filters());
    this.moment = TableOptions.isPinned(options) ? null : QueryMoment.current();
  }

  private void setFilters(List<String> filters) {
    filterText = String.join(" AND ", filters);
    Map<String, String> added = new HashMap<>();
    if (!filters.isEmpty()) {
      String ofUser = given.get("filter"); // may end in a comment
      added.put("filter", ofUser == null ? filterText : "(" + ofUser + "\n) AND " + filterText);
    }
    if (pushed.measures() != null) {
      added.put("aggregate", Json.of(pushed.measures().byName()));
    }
    options = PythonSource.with(given, added);
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public String description() {
    String columns = "columns: " + String.join(", ", schema.fieldNames());
    String what = pushed.measures() == null ? columns : "aggregate: " + pushed.measures();
    String first = pushed.first() == null ? "" : ", first: " + pushed.first();
    return "nyala " + name + " [" + what + "], filter: [" + filterText + "]" + first;
  }

  /** Conditions on these columns may come when the query runs: the keys of the other side of a join. */
  @Override
  public NamedReference[] filterAttributes() {
    boolean isOfRows = pushed.measures() == null && pushed.first() == null && !TableOptions.isOfChanges(given)
        && !given.containsKey("aggregate");
    return isOfRows ? Stream.of(schema.fieldNames()).map(NyalaScan::reference).toArray(NamedReference[]::new)
        : new NamedReference[0];
  }

  static NamedReference reference(String column) {
    return Expressions.column("`" + column.replace("`", "``") + "`");
  }

  /** Lets the store leave out rows that a join would not find. Spark joins as before, so a condition may be left out. */
  @Override
  public void filter(Predicate[] predicates) {
    FilterText filterText = new FilterText(schema);
    List<String> all = new ArrayList<>(pushed.filters());
    int length = 0;
    for (Predicate predicate : predicates) {
      String text = filterText.of(predicate).orElse("");
      length += text.length();
      if (!text.isEmpty() && length <= JOIN_FILTER_MAX) {
        all.add(text);
      }
    }
    setFilters(all);
  }

  @Override
  public Batch toBatch() {
    return new Tasks();
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    if (!TableOptions.isOfChanges(options)) {
      throw new UnsupportedOperationException(
          "a stream reads changes, with the columns _op and _timestamp: read " + name + ".changes, or use "
              + "readStream.format(\"nyala\") with the option readChangeFeed");
    }
    isStream = true;
    return PythonSource.scan(schema, options).toMicroBatchStream(checkpointLocation);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return isStream ? ColumnarSupportMode.UNSUPPORTED : ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return isStream ? PythonSource.scan(schema, options).supportedCustomMetrics() : new CustomMetric[0];
  }

  /** Returns the store's estimate for these columns and filters, from its files and zone maps. */
  @Override
  public synchronized Statistics estimateStatistics() {
    if (statistics == null) {
      statistics = estimate();
    }
    return statistics;
  }

  private Estimate estimate() {
    boolean isOfUser = pushed.measures() == null && options.containsKey("aggregate");
    if (isOfUser || pushed.isOneRow()) {
      return new Estimate(OptionalLong.of(1), OptionalLong.of(schema.defaultSize()));
    }
    if (TableOptions.isOfChanges(options)) {
      return new Estimate(OptionalLong.empty(), OptionalLong.empty()); // unknown for changes
    }
    long[] size = new ReadRequest(schema, options, pushed).size();
    return new Estimate(OptionalLong.of(size[0]), OptionalLong.of(Math.max(size[1], 1)));
  }

  private record Estimate(OptionalLong numRows, OptionalLong sizeInBytes) implements Statistics {}

  /** The tasks; equal for scans of one query that read the same, so that Spark runs equal parts of a plan once. */
  private final class Tasks implements Batch {
    private final CaseInsensitiveStringMap asked = options;
    private final ReadRequest request = new ReadRequest(schema, asked, pushed);
    private ScanParts plan;

    @Override
    public InputPartition[] planInputPartitions() {
      return planned().parts().stream().map(PartReaderFactory.Part::new).toArray(InputPartition[]::new);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return request.readers(latest == null ? planned() : latest);
    }

    private synchronized ScanParts planned() {
      if (plan == null) {
        plan = moment == null ? request.plan(null) : moment.plan(ReadOptions.uri(asked), request::plan);
        latest = plan;
      }
      return plan;
    }

    private boolean isSame(Tasks other, NyalaScan its) {
      return moment == its.moment && schema.equals(its.schema) && asked.equals(other.asked) && pushed.equals(its.pushed);
    }

    private NyalaScan scan() {
      return NyalaScan.this;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Tasks tasks && isSame(tasks, tasks.scan());
    }

    @Override
    public int hashCode() {
      return asked.hashCode();
    }
  }
}
