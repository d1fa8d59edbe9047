package io.nyala.spark.read;

import org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException;
import org.apache.spark.sql.connector.catalog.FunctionCatalog;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;

/** A catalog with a {@link BucketFunction} for every number of buckets, which Spark asks for by name. */
public interface BucketFunctions extends FunctionCatalog {
  @Override
  default Identifier[] listFunctions(String[] namespace) {
    return new Identifier[0];
  }

  @Override
  default UnboundFunction loadFunction(Identifier function) throws NoSuchFunctionException {
    return BucketFunction.named(function.name()).orElseThrow(() -> new NoSuchFunctionException(function));
  }
}
