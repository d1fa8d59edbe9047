package io.nyala.spark;

import io.nyala.flight.Json;
import io.nyala.flight.ScanParts;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One scan of one query: planned when it runs, and read by its tasks, without Python. Micro-batches of a stream are
 * those of the Python data source.
 */
final class NyalaScan implements SupportsReportStatistics {
  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final String pushedFilter;
  private final Measures measures;
  private final QueryMoment moment;
  private Statistics statistics;
  private boolean isStream;

  NyalaScan(
      String name, StructType columns, CaseInsensitiveStringMap given, List<String> filters, Measures measures) {
    this.name = name;
    this.schema = measures == null ? columns : measures.schema();
    this.measures = measures;
    this.pushedFilter = String.join(" AND ", filters);
    this.options = PythonSource.with(given, pushed(given));
    this.moment = TableOptions.isPinned(options) ? null : QueryMoment.current();
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public String description() {
    String columns = "columns: " + String.join(", ", schema.fieldNames());
    String what = measures == null ? columns : "aggregate: " + measures;
    return "nyala " + name + " [" + what + "], filter: [" + pushedFilter + "]";
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
    if (options.containsKey("aggregate") && groups().isEmpty()) {
      return new Estimate(OptionalLong.of(1), OptionalLong.of(schema.defaultSize()));
    }
    if (TableOptions.isOfChanges(options)) {
      return new Estimate(OptionalLong.empty(), OptionalLong.empty()); // unknown for changes
    }
    long[] size = new ReadRequest(schema, options, groups()).size();
    return new Estimate(OptionalLong.of(size[0]), OptionalLong.of(Math.max(size[1], 1)));
  }

  private Map<String, String> pushed(CaseInsensitiveStringMap given) {
    Map<String, String> added = new HashMap<>();
    if (!pushedFilter.isEmpty()) {
      String ofUser = given.get("filter"); // may end in a comment
      added.put("filter", ofUser == null ? pushedFilter : "(" + ofUser + "\n) AND " + pushedFilter);
    }
    if (measures != null) {
      added.put("aggregate", Json.of(measures.byName()));
    }
    return added;
  }

  private List<String> groups() {
    return measures == null ? List.of() : measures.groups();
  }

  private record Estimate(OptionalLong numRows, OptionalLong sizeInBytes) implements Statistics {}

  /** The tasks; equal for scans of one query that read the same, so that Spark runs equal parts of a plan once. */
  private final class Tasks implements Batch {
    private final ReadRequest request = new ReadRequest(schema, options, groups());
    private ScanParts plan;

    @Override
    public InputPartition[] planInputPartitions() {
      return planned().parts().stream().map(PartReaderFactory.Part::new).toArray(InputPartition[]::new);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return request.readers(planned());
    }

    private synchronized ScanParts planned() {
      if (plan == null) {
        plan = moment == null ? request.plan(null) : moment.plan(ReadOptions.uri(options), request::plan);
      }
      return plan;
    }

    private NyalaScan scan() {
      return NyalaScan.this;
    }

    @Override
    public boolean equals(Object other) {
      if (!(other instanceof Tasks tasks)) {
        return false;
      }
      NyalaScan scan = tasks.scan();
      return moment == scan.moment && schema.equals(scan.schema) && options.equals(scan.options);
    }

    @Override
    public int hashCode() {
      return options.hashCode();
    }
  }
}
