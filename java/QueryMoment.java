package io.nyala.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import scala.Option;

/**
 * The moment at which all tables of a store are read in one query: a table that is joined with itself is one table.
 *
 * <p>Spark plans each scan of a query by itself, and does not say which belong together, but has one tracker in each
 * query while it optimizes it. A query with a single scan needs no moment: its tasks are pinned by the store.
 */
final class QueryMoment {
  private static final Map<QueryPlanningTracker, QueryMoment> BY_QUERY = new WeakHashMap<>();

  private final Map<String, Integer> scans = new HashMap<>();
  private final Map<String, Long> moments = new HashMap<>();

  private QueryMoment() {}

  /** Returns that of the query which this thread is optimizing, and counts a scan of the store at {@code uri}. */
  static QueryMoment ofScan(String uri) {
    QueryMoment moment = current();
    moment.count(uri);
    return moment;
  }

  /** Returns the timestamp to read the store at; null where the query does so only once. */
  synchronized Long timestamp(String uri) {
    if (scans.getOrDefault(uri, 0) < 2) {
      return null;
    }
    return moments.computeIfAbsent(uri, key -> PythonSource.askNumber("now", Map.of("uri", key), "now"));
  }

  private synchronized void count(String uri) {
    scans.merge(uri, 1, Integer::sum);
  }

  private static QueryMoment current() {
    Option<QueryPlanningTracker> tracker = QueryPlanningTracker.get();
    if (tracker.isEmpty()) {
      return new QueryMoment();
    }
    synchronized (BY_QUERY) {
      return BY_QUERY.computeIfAbsent(tracker.get(), key -> new QueryMoment());
    }
  }
}
