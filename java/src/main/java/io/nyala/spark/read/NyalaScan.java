package io.nyala.spark.read;

import io.nyala.flight.ScanParts;
import io.nyala.spark.options.ColumnNames;
import io.nyala.spark.options.PythonSource;
import io.nyala.spark.options.QueryMoment;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.tables.StoreTable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.colstats.ColumnStatistics;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One scan of one query: planned when Spark optimizes it, and read by its tasks, without Python. Micro-batches of a stream
 * are those of the Python data source.
 */
final class NyalaScan implements SupportsReportStatistics, SupportsReportPartitioning, SupportsRuntimeV2Filtering {
  private static final int JOIN_FILTER_MAX = 32 << 10; // longer ones than 64 KiB are read by one task (docs/flight.md)

  private final StoreTable table;
  private final StructType schema;
  private final StructType comparable;
  private final CaseInsensitiveStringMap options;
  private final Pushed pushed;
  private final QueryMoment moment;
  private final ThreadLocal<List<String>> ofJoin = new ThreadLocal<>();
  private String filterText;
  private Planned planned;
  private Map<NamedReference, ColumnStatistics> facts;
  private boolean isStream;

  NyalaScan(StoreTable table, StructType columns, CaseInsensitiveStringMap options, Pushed pushed) {
    this.table = table;
    this.comparable = HashKeys.comparable(table.schema());
    this.schema = pushed.measures() == null ? columns : pushed.measures().schema();
    this.pushed = pushed;
    this.options = options;
    this.moment = TableOptions.isPinned(options) ? null : QueryMoment.current();
    this.filterText = joined(pushed.filters());
  }

  private static String joined(List<String> filters) {
    return String.join(" AND ", filters);
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
    return "nyala " + table.name() + " [" + what + "], filter: [" + filterText + "]" + first;
  }

  /** Returns by what the rows of a part are hashed; Spark asks for it while it optimizes. */
  @Override
  public Partitioning outputPartitioning() {
    boolean hasFunctions = table.isOfCatalog() && pushed.measures() == null; // else see HashedScans
    return (hasFunctions ? told() : Optional.<HashKeys>empty())
        .map(HashKeys::partitioning).orElseGet(() -> new UnknownPartitioning(0));
  }

  /** Returns by what the rows of a part are hashed; then the parts have these keys. */
  Optional<HashKeys> told() {
    boolean mayTell = isOfRows() && pushed.first() == null && !pushed.isOneRow() && SQLConf.get().v2BucketingEnabled();
    return mayTell ? planned().told() : Optional.empty();
  }

  /** Conditions on these columns may come when the query runs: the keys of the other side of a join. */
  @Override
  public NamedReference[] filterAttributes() {
    boolean isPrunable = isOfRows() && pushed.measures() == null && pushed.first() == null;
    return Stream.of(isPrunable ? schema.fieldNames() : new String[0])
        .filter(name -> HashKeys.isClear(name, table.schema()))
        .map(ColumnNames::reference)
        .toArray(NamedReference[]::new);
  }

  private boolean isOfRows() {
    return !TableOptions.isOfChanges(options) && !options.containsKey("aggregate");
  }

  /** Whether the rows of measures are the answer: one, or one for each group. */
  boolean isComplete() {
    return pushed.isOneRow() || planned().parts.isCombined();
  }

  /**
   * Lets the store leave out rows that a join would not find, in the tasks that this thread asks for next. Spark joins as
   * before, so a condition may be left out.
   */
  @Override
  public void filter(Predicate[] predicates) {
    FilterText text = new FilterText(table, schema);
    List<String> all = new ArrayList<>(pushed.filters());
    int length = 0;
    for (Predicate predicate : predicates) {
      String condition = text.of(predicate).orElse("");
      length += condition.length();
      if (!condition.isEmpty() && length <= JOIN_FILTER_MAX) {
        all.add(condition);
      }
    }
    filterText = joined(all);
    ofJoin.set(all);
  }

  @Override
  public Batch toBatch() {
    List<String> filters = ofJoin.get();
    ofJoin.remove();
    return new Tasks(filters == null ? pushed : pushed.with(filters));
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    if (!TableOptions.isOfChanges(options)) {
      throw new UnsupportedOperationException(
          "a stream reads changes, with the columns _op and _timestamp: read " + table.name() + ".changes, or use "
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
  public Statistics estimateStatistics() {
    if (options.containsKey("aggregate") || pushed.isOneRow()) {
      return new Estimate(OptionalLong.of(1), OptionalLong.of(schema.defaultSize()));
    }
    if (TableOptions.isOfChanges(options)) {
      return new Estimate(OptionalLong.empty(), OptionalLong.empty()); // unknown for changes
    }
    ScanParts.Size size = pushed.limited(planned().parts.size());
    return new Estimate(OptionalLong.of(size.rows()), OptionalLong.of(Math.max(size.bytes(), 1)), ofColumns());
  }

  private record Estimate(
      OptionalLong numRows, OptionalLong sizeInBytes, Map<NamedReference, ColumnStatistics> columnStats)
      implements Statistics {
    Estimate(OptionalLong numRows, OptionalLong sizeInBytes) {
      this(numRows, sizeInBytes, Map.of());
    }
  }

  /** Returns what the cost-based optimizer, if it is on, asks of columns; the store computes it once for each scan. */
  private synchronized Map<NamedReference, ColumnStatistics> ofColumns() {
    SQLConf conf = SQLConf.get();
    boolean isAsked = conf.cboEnabled() || conf.planStatsEnabled();
    if (!isAsked || !isOfRows() || pushed.measures() != null || schema.isEmpty()) {
      return Map.of();
    }
    if (facts == null) {
      Pushed whole = new Pushed(List.of(), ColumnFacts.measures(schema), null);
      boolean isFiltered = options.containsKey("filter") || !pushed.filters().isEmpty();
      facts = ColumnFacts.of(schema, table.about() == null ? List.of() : table.about().key(), one(whole), isFiltered);
    }
    return facts;
  }

  /** Returns the only row of a scan of measures. */
  private InternalRow one(Pushed measured) {
    ReadRequest request = new ReadRequest(measured.measures().schema(), options, measured);
    ScanParts plan = request.plan(planned().parts.moment());
    try (PartReader reader = new PartReader(request.readers(plan), plan.parts().get(0))) {
      if (!reader.next()) {
        throw new IllegalStateException("an aggregate without a row");
      }
      return reader.get().getRow(0).copy();
    }
  }

  /** Returns the parts without the conditions of joins. Each query has scans of its own, so it sees what is new. */
  private synchronized Planned planned() {
    if (planned == null) {
      planned = new Planned(parts(pushed));
    }
    return planned;
  }

  private ScanParts parts(Pushed asked) {
    ReadRequest request = new ReadRequest(schema, options, asked);
    return moment == null ? request.plan(null) : moment.plan(ReadOptions.uri(options), request::plan);
  }

  /** A plan, and what Spark knows of it. */
  private final class Planned {
    private final ScanParts parts;
    private Optional<HashKeys> keys = Optional.empty();
    private boolean isTold;

    Planned(ScanParts parts) {
      this.parts = parts;
    }

    /** Decides once, because Spark relies on it: how many cores there are may change while the query runs. */
    synchronized Optional<HashKeys> told() {
      if (!isTold) {
        keys = HashKeys.of(parts, comparable, schema).filter(HashKeys::doPay);
        isTold = true;
      }
      return keys;
    }

    /**
     * Returns this scan with the conditions of a join. If the parts do not fit where Spark has placed those of this plan,
     * these remain, with rows that the join drops.
     */
    synchronized Planned pruned(Pushed asked) {
      Planned fewer = new Planned(parts(asked));
      if (keys.isPresent()) {
        fewer.keys = HashKeys.of(fewer.parts, comparable, schema).filter(each -> each.canReplace(keys.get()));
      }
      return fewer.keys.isPresent() == keys.isPresent() ? fewer : this;
    }

    InputPartition[] tasks() {
      Stream<InputPartition> tasks = keys.isPresent()
          ? parts.parts().stream().map(keys.get()::task)
          : partsOfTasks().stream().map(PartReaderFactory.Parts::new);
      return tasks.toArray(InputPartition[]::new);
    }

    /** Returns the parts of each task. Of first rows, and where the user chose the size, each part has its own. */
    private List<List<ScanParts.Part>> partsOfTasks() {
      boolean isApart = pushed.first() != null || options.containsKey("splitSizeBytes");
      return isApart ? parts.parts().stream().map(List::of).toList() : TaskParts.of(parts.parts());
    }
  }

  /** The tasks; equal for scans of one query that read the same, so that Spark runs equal parts of a plan once. */
  private final class Tasks implements Batch {
    private final Pushed asked;

    Tasks(Pushed asked) {
      this.asked = asked;
    }

    @Override
    public InputPartition[] planInputPartitions() {
      return (asked.equals(pushed) ? planned() : planned().pruned(asked)).tasks();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new ReadRequest(schema, options, pushed).readers(planned().parts);
    }

    private boolean isSame(Tasks other, NyalaScan its) {
      boolean isAlike = options.equals(its.options) && pushed.equals(its.pushed);
      return moment == its.moment && schema.equals(its.schema) && isAlike && asked.equals(other.asked);
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
      return 31 * options.hashCode() + asked.hashCode();
    }
  }
}
