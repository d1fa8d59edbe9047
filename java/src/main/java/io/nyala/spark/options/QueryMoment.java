package io.nyala.spark.options;

import io.nyala.flight.ScanParts;
import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import scala.Option;

/**
 * The timestamp at which one query reads all tables of a store, so that a table joined with itself is the same twice:
 * the snapshot of the scan that is planned first.
 *
 * <p>Spark plans each scan of a query separately, and does not say which belong together, but has one tracker for each
 * query while it optimizes it.
 */
public final class QueryMoment {
  private static final Map<QueryPlanningTracker, QueryMoment> BY_QUERY = new WeakHashMap<>();

  private final Map<String, ScanParts.Moment> moments = new HashMap<>();

  private QueryMoment() {}

  /** Returns the moment of the query that this thread optimizes. */
  public static QueryMoment current() {
    Option<QueryPlanningTracker> tracker = QueryPlanningTracker.get();
    if (tracker.isEmpty()) {
      return new QueryMoment();
    }
    synchronized (BY_QUERY) {
      return BY_QUERY.computeIfAbsent(tracker.get(), key -> new QueryMoment());
    }
  }

  /** Returns the moment at which the query reads the store at {@code uri}; {@code now} gives it for the first. */
  public synchronized ScanParts.Moment at(String uri, Supplier<ScanParts.Moment> now) {
    return moments.computeIfAbsent(uri, key -> now.get());
  }

  /** Plans a scan of the store at {@code uri}; {@code plan} takes the moment, which is null for the first. */
  public synchronized ScanParts plan(String uri, Function<ScanParts.Moment, ScanParts> plan) {
    ScanParts found = plan.apply(moments.get(uri));
    moments.putIfAbsent(uri, found.moment());
    return found;
  }
}
