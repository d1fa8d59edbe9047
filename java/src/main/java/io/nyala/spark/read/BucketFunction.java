package io.nyala.spark.read;

import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.XxHash64Function;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The bucket of a row in a hash level of one column (docs/partitions.md), by which Spark tells that two tables are hashed
 * alike: {@code bucket_4_0} for four buckets and the seed 0.
 */
record BucketFunction(int buckets, int seed) implements UnboundFunction {
  private static final Pattern NAME = Pattern.compile("bucket_(\\d{1,9})_(\\d{1,10})");
  private static final long SPARK_SEED = 42;

  static Optional<BucketFunction> named(String name) {
    Matcher parts = NAME.matcher(name);
    if (!parts.matches() || Long.parseLong(parts.group(2)) > Integer.MAX_VALUE || Integer.parseInt(parts.group(1)) < 1) {
      return Optional.empty();
    }
    return Optional.of(new BucketFunction(Integer.parseInt(parts.group(1)), Integer.parseInt(parts.group(2))));
  }

  @Override
  public String name() {
    return "bucket_" + buckets + "_" + seed;
  }

  @Override
  public String description() {
    return name() + "(column): the bucket of a row, of " + buckets;
  }

  @Override
  public BoundFunction bind(StructType given) {
    if (given.length() != 1 || !Measures.isGroup(given.apply(0).dataType())) {
      throw new UnsupportedOperationException(
          name() + " takes one column that a key may have, not " + given.simpleString());
    }
    return new OfType(this, given.apply(0).dataType());
  }

  private int of(Object cell, DataType type) {
    long hash = seed == 0 ? SPARK_SEED : XxHash64Function.hash(seed, DataTypes.IntegerType, SPARK_SEED);
    return Math.floorMod(XxHash64Function.hash(cell, type, hash), buckets);
  }

  /** The same for cells of one type. Cells of another type that are equal may have another hash. */
  private record OfType(BucketFunction function, DataType type) implements ScalarFunction<Integer> {
    @Override
    public DataType[] inputTypes() {
      return new DataType[] {type};
    }

    @Override
    public DataType resultType() {
      return DataTypes.IntegerType;
    }

    @Override
    public boolean isResultNullable() {
      return false;
    }

    @Override
    public String name() {
      return function.name();
    }

    /** Returns what is equal for two functions if they give all cells the same buckets. */
    @Override
    public String canonicalName() {
      return "io.nyala." + name() + "(" + type.catalogString() + ")";
    }

    @Override
    public Integer produceResult(InternalRow input) {
      return function.of(input.isNullAt(0) ? null : input.get(0, type), type);
    }
  }
}
