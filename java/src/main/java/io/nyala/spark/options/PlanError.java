package io.nyala.spark.options;

import io.nyala.flight.StoreException;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;

/** Turns errors of a store into what Spark raises where a query cannot be planned: an AnalysisException. */
public final class PlanError {
  private PlanError() {}

  /** Throws it. In Java an AnalysisException is to be declared; Spark's own code, which calls this, is in Scala. */
  public static RuntimeException thrown(StoreException error) {
    return thrown(error.getMessage(), Option.apply(error));
  }

  /** Throws an error that Spark says as it is, also where it gives an IllegalArgumentException words of its own. */
  public static RuntimeException invalid(String why) {
    return thrown(why, Option.empty());
  }

  private static RuntimeException thrown(String why, Option<Throwable> cause) {
    return PlanError.<RuntimeException>undeclared(new AnalysisException(
        why, Option.empty(), Option.empty(), cause, Option.empty(), Map$.MODULE$.<String, String>empty(),
        new QueryContext[0]));
  }

  @SuppressWarnings("unchecked")
  public static <E extends Throwable> E undeclared(Throwable error) throws E {
    throw (E) error;
  }
}
