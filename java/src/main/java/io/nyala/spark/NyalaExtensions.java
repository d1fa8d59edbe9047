package io.nyala.spark;

import io.nyala.spark.read.HashedScans;
import io.nyala.spark.write.AssignedColumns;
import io.nyala.spark.write.InsertMark;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.classic.SparkSession;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Lets statements write only some columns of existing rows, and Spark compare how scans are hashed; {@code
 * spark.sql.extensions} names this class.
 *
 * <p>Spark fills the columns that a statement leaves out before a data source sees its rows. {@link WrittenColumns}
 * finds these columns, {@link InsertMark} marks the writes that are SQL statements, {@link AssignedColumns} finds the
 * columns to which others assign, {@link HashedScans} tells how rows are spread over the parts of scans.
 */
public final class NyalaExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectHintResolutionRule(session -> new InsertMark()); // while INSERT is still distinct
    extensions.injectPostHocResolutionRule(session -> new WrittenColumns((SparkSession) session)); // once its columns are resolved
    extensions.injectPostHocResolutionRule(session -> new AssignedColumns());
    extensions.injectQueryPostPlannerStrategyRule(session -> new HashedScans()); // before there are shuffles
    return BoxedUnit.UNIT;
  }
}
