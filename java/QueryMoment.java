package io.nyala.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.QueryPlanningTracker;
import scala.Option;

/**
 * The timestamp at which one query reads all tables of a store, so that a table joined with itself is the same twice.
 *
 * <p>Spark plans each scan of a query separately, and does not say which belong together, but has one tracker for each
 * query while it optimizes it. A query with a single scan needs no timestamp: the store pins its tasks.
 */
final class QueryMoment {
  private static final Map<QueryPlanningTracker, QueryMoment> BY_QUERY = new WeakHashMap<>();

  private final Map<String, Integer> scans = new HashMap<>();
  private final Map<String, Long> moments = new HashMap<>();

  private QueryMoment() {}

  /** Returns the moment of the query that this thread optimizes, and counts a scan of the store at {@code uri}. */
  static QueryMoment ofScan(String uri) {
    QueryMoment moment = current();
    moment.count(uri);
    return moment;
  }

  /** Returns the timestamp to read the store of a server at; null if the query reads it only once. */
  synchronized Long timestamp(Map<String, String> server) {
    String uri = server.get("uri");
    if (scans.getOrDefault(uri, 0) < 2) {
      return null;
    }
    return moments.computeIfAbsent(uri, key -> PythonSource.askNumber("now", server, "now"));
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
