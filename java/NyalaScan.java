package io.nyala.spark;

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

/** One scan of one query. Python plans its tasks when it runs, from the options that say what to read. */
final class NyalaScan implements SupportsReportStatistics {
  private final String name;
  private final StructType schema;
  private final CaseInsensitiveStringMap options;
  private final String pushedFilter;
  private final Measures measures;
  private final QueryMoment moment;
  private Statistics statistics;

  NyalaScan(
      String name, StructType columns, CaseInsensitiveStringMap given, List<String> filters, Measures measures) {
    this.name = name;
    this.schema = measures == null ? columns : measures.schema();
    this.measures = measures;
    this.pushedFilter = String.join(" AND ", filters);
    this.options = PythonSource.with(given, pushed(given));
    this.moment = TableOptions.isPinned(options) ? null : QueryMoment.ofScan(uri());
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public String description() {
    String columns = "columns: " + String.join(", ", schema.fieldNames());
    String what = measures == null ? columns : "aggregate: " + measures.byName();
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
    return PythonSource.scan(schema, options).toMicroBatchStream(checkpointLocation);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.UNSUPPORTED; // as in Spark's Python reader; asking each task would need a plan
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return PythonSource.scan(schema, options).supportedCustomMetrics();
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
    if (options.containsKey("aggregate")) {
      return new Estimate(OptionalLong.of(1), OptionalLong.of(schema.defaultSize()));
    }
    if (TableOptions.isOfChanges(options)) {
      return new Estimate(OptionalLong.empty(), OptionalLong.empty()); // unknown for changes
    }
    Map<String, String> columns = Map.of("columns", Json.of(schema.fieldNames()));
    StructType answer = PythonSource.ask("size", PythonSource.with(options, columns));
    long bytes = Math.max(PythonSource.number(answer, "bytes"), 1);
    return new Estimate(OptionalLong.of(PythonSource.number(answer, "rows")), OptionalLong.of(bytes));
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

  private CaseInsensitiveStringMap pinned() {
    Long timestamp = moment == null ? null : moment.timestamp(TableOptions.ofServer(options));
    if (timestamp == null) {
      return options;
    }
    String option = TableOptions.isOfChanges(options) ? "endTimestamp" : "snapshotTimestamp";
    return PythonSource.with(options, Map.of(option, timestamp.toString()));
  }

  private String uri() {
    return options.getOrDefault("uri", "");
  }

  private record Estimate(OptionalLong numRows, OptionalLong sizeInBytes) implements Statistics {}

  /** The tasks; equal for scans of one query that read the same, so that Spark runs equal parts of a plan once. */
  private final class Tasks implements Batch {
    private Batch planned;

    @Override
    public InputPartition[] planInputPartitions() {
      return planned().planInputPartitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return planned().createReaderFactory();
    }

    private synchronized Batch planned() {
      if (planned == null) {
        planned = PythonSource.scan(schema, pinned()).toBatch();
      }
      return planned;
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
