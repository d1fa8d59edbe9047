package io.nyala.spark.read;

import io.nyala.flight.ScanParts;
import io.nyala.flight.ScanParts.HashLevel;
import io.nyala.spark.options.ColumnNames;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.TransformExpression;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The spread of a scan's rows over its parts by hash. The parts with one key, a bucket of each level, have all rows
 * of these buckets. So Spark joins tables that are hashed alike, and groups by what they are hashed by, without a shuffle.
 *
 * <p>Spark compares functions of one column: a level of several columns tells it nothing. Nor does one of a column that
 * is not read, or whose values are equal in Spark where the hashed cells differ.
 */
record HashKeys(List<Key> keys, Map<ScanParts.Part, List<Integer>> byPart) {
  private record Key(int place, StructField column, BucketFunction function) {}

  /** Returns the columns of a table by which Spark may compare parts. */
  static StructType comparable(StructType table) {
    return new StructType(Stream.of(table.fields())
        .filter(field -> Measures.isGroup(field.dataType()) && isClear(field.name(), table))
        .toArray(StructField[]::new));
  }

  /** Whether Spark, which may not tell cases apart, finds a column of a table by its name. */
  static boolean isClear(String name, StructType table) {
    return SQLConf.get().caseSensitiveAnalysis()
        || Stream.of(table.fields()).filter(field -> isAlike(field, name)).count() == 1;
  }

  private static boolean isAlike(StructField field, String name) {
    return field.name().equalsIgnoreCase(name);
  }

  /**
   * Returns the keys of the parts of a scan; empty if they tell nothing.
   *
   * @param comparable the columns that may be compared
   * @param read the columns that the scan reads
   */
  static Optional<HashKeys> of(ScanParts plan, StructType comparable, StructType read) {
    List<Key> keys = new ArrayList<>();
    for (HashLevel level : plan.hash()) {
      Stream<StructField> fields = level.columns().size() == 1 ? Stream.of(comparable.fields()) : Stream.of();
      int place = plan.hash().indexOf(level);
      fields.filter(field -> isSame(field, level.columns().get(0)))
          .filter(field -> read.getFieldIndex(field.name()).isDefined())
          .forEach(field ->
              keys.add(new Key(place, field, new BucketFunction(level.buckets(), level.seed()))));
    }
    Map<ScanParts.Part, List<Integer>> byPart = new HashMap<>();
    for (ScanParts.Part part : plan.parts()) {
      List<Integer> buckets = part.buckets();
      if (buckets.size() < plan.hash().size()) {
        return Optional.empty(); // not a part of one tablet
      }
      byPart.put(part, keys.stream().map(key -> buckets.get(key.place)).toList());
    }
    return keys.isEmpty() ? Optional.empty() : Optional.of(new HashKeys(keys, byPart));
  }

  private static boolean isSame(StructField field, String name) {
    return SQLConf.get().caseSensitiveAnalysis() ? field.name().equals(name) : isAlike(field, name);
  }

  /** Whether a query without a shuffle is faster: a shuffle keeps all cores busy, and a few buckets only so many. */
  boolean doPay() {
    return 2 * count() >= Math.min(byPart.size(), SparkContext.getOrCreate().defaultParallelism());
  }

  private long count() {
    return byPart.values().stream().distinct().count();
  }

  /** Returns the keys in the form in which a source tells them. Spark looks for the functions in the table's catalog. */
  Partitioning partitioning() {
    Transform[] functions = keys.stream()
        .map(key -> Expressions.apply(key.function.name(), ColumnNames.reference(key.column.name())))
        .toArray(Transform[]::new);
    return new KeyGroupedPartitioning(functions, (int) count());
  }

  /** Returns the keys as functions of these columns of a plan; empty if one is not there. */
  Optional<List<Expression>> functionsOf(List<AttributeReference> columns) {
    List<Expression> functions = new ArrayList<>();
    for (Key key : keys) {
      BoundFunction function = key.function.bind(new StructType(new StructField[] {key.column}));
      columns.stream()
          .filter(column -> column.name().equals(key.column.name()))
          .map(column -> CollectionConverters.asScala(List.<Expression>of(column)).toSeq())
          .forEach(column -> functions.add(new TransformExpression(function, column, Option.empty(), Option.empty())));
    }
    return functions.size() == keys.size() ? Optional.of(functions) : Optional.empty();
  }

  /** Returns a task that reads a part. */
  InputPartition task(ScanParts.Part part) {
    return new PartReaderFactory.KeyedPart(part, byPart.get(part));
  }

  /**
   * Returns whether these parts can take the place of others when the query runs: Spark has given each its place among
   * those with its key.
   */
  boolean canReplace(HashKeys others) {
    Map<List<Integer>, Long> places = others.places();
    return keys.equals(others.keys)
        && places().entrySet().stream().allMatch(mine -> mine.getValue() <= places.getOrDefault(mine.getKey(), 0L));
  }

  private Map<List<Integer>, Long> places() {
    Map<List<Integer>, Long> found = new HashMap<>();
    byPart.values().forEach(key -> found.merge(key, 1L, Long::sum));
    return found;
  }
}
