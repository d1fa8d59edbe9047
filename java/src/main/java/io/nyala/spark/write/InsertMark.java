package io.nyala.spark.write;

import org.apache.spark.sql.catalyst.plans.logical.InsertIntoStatement;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNodeTag;

/** Marks {@code INSERT} statements. Spark keeps the mark when it turns one into an append or an overwrite. */
public final class InsertMark extends Rule<LogicalPlan> {
  private static final TreeNodeTag<Boolean> IS_INSERT = new TreeNodeTag<>("io.nyala.spark.isInsert");

  public static boolean isOn(LogicalPlan plan) {
    return plan.getTagValue(IS_INSERT).isDefined();
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    plan.foreach(node -> {
      if (node instanceof InsertIntoStatement) {
        node.setTagValue(IS_INSERT, true);
      }
      return null;
    });
    return plan;
  }
}
