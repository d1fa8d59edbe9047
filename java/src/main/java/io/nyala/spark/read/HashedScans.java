package io.nyala.spark.read;

import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Tells Spark how the rows of scans are spread over their parts, where it does not ask: it looks for {@link
 * BucketFunctions} only in the catalog of a table, which {@code format("nyala")} has none of, and for columns only among
 * those of the table, which are others than the groups of an aggregate. Spark applies it to plans that adapt themselves
 * while they run ({@code spark.sql.adaptive.enabled}).
 */
public final class HashedScans extends Rule<SparkPlan> {
  @Override
  public SparkPlan apply(SparkPlan plan) {
    return (SparkPlan) plan.transformDown(new AbstractPartialFunction<SparkPlan, SparkPlan>() {
      @Override
      public boolean isDefinedAt(SparkPlan node) {
        return node instanceof BatchScanExec exec
            && exec.scan() instanceof NyalaScan
            && exec.keyGroupedPartitioning().isEmpty();
      }

      @Override
      public SparkPlan apply(SparkPlan node) {
        BatchScanExec exec = (BatchScanExec) node;
        return ((NyalaScan) exec.scan()).told().map(keys -> with(keys, exec)).orElse(exec);
      }
    });
  }

  private static SparkPlan with(HashKeys keys, BatchScanExec exec) {
    Optional<List<Expression>> functions = keys.functionsOf(CollectionConverters.asJava(exec.output()));
    if (functions.isEmpty()) {
      return exec;
    }
    Seq<Expression> all = CollectionConverters.asScala(functions.get()).toSeq();
    return exec.copy(
        exec.output(), exec.scan(), exec.runtimeFilters(), exec.ordering(), exec.table(), Option.apply(all));
  }
}
