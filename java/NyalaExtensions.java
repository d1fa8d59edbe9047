package io.nyala.spark;

import java.util.List;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.internal.SQLConf;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * What a session of Spark needs so that a statement may write some columns of a live row: {@code spark.sql.extensions}
 * names this class.
 *
 * <p>Spark fills the columns that a statement leaves out before a data source sees its rows. {@link WrittenColumns}
 * tells which they are, {@link InsertMark} which writes are statements of SQL.
 */
public final class NyalaExtensions extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  /** Whether the session of this thread has them. */
  static boolean areInUse() {
    String named = SQLConf.get().getConfString("spark.sql.extensions", "");
    return List.of(named.split(",")).contains(NyalaExtensions.class.getName());
  }

  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectHintResolutionRule(session -> new InsertMark()); // before INSERT becomes one of many writes
    extensions.injectPostHocResolutionRule(session -> new WrittenColumns()); // when its columns are resolved
    return BoxedUnit.UNIT;
  }
}
