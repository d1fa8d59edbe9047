package io.nyala.spark.read;

import io.nyala.flight.ScanParts;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.internal.SQLConf;
import scala.Option;

/**
 * The parts of a scan for each task. There are as many tasks as Spark would make of files with as many bytes, by the
 * same settings: each has its costs, and so has the beginning of each part.
 */
final class TaskParts {
  private TaskParts() {}

  /** Returns the parts of each task: neighbours, about as many bytes as those of the others. */
  static List<List<ScanParts.Part>> of(List<ScanParts.Part> parts) {
    SQLConf conf = SQLConf.get();
    long beginning = conf.filesOpenCostInBytes();
    long all = parts.stream().mapToLong(part -> part.bytes() + beginning).sum();
    long count = Math.max(least(conf), (all - 1) / conf.filesMaxPartitionBytes() + 1);
    if (count >= parts.size()) {
      return parts.stream().map(List::of).toList();
    }
    Map<Long, List<ScanParts.Part>> tasks = new LinkedHashMap<>();
    long before = 0;
    for (ScanParts.Part part : parts) {
      long bytes = part.bytes() + beginning;
      long number = (long) ((before + bytes / 2.0) / all * count); // where its middle lies
      tasks.computeIfAbsent(number, any -> new ArrayList<>()).add(part);
      before += bytes;
    }
    return List.copyOf(tasks.values());
  }

  private static int least(SQLConf conf) {
    Option<Object> set = conf.filesMinPartitionNum();
    return set.isDefined() ? (Integer) set.get() : SparkSession.active().leafNodeDefaultParallelism();
  }
}
