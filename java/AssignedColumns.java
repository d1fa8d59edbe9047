package io.nyala.spark;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.MergeRows;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.WriteDelta;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.util.RowDeltaUtils;
import org.apache.spark.sql.connector.write.RowLevelOperationTable;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Tells each {@code UPDATE} and {@code MERGE} of our tables to which columns it assigns: only these are sent, so that
 * the others, immutable ones among them, are not written. Spark assigns each other column to itself.
 *
 * <p>It also takes from them the condition by which Spark would find beforehand, by a query of its own, which groups of
 * rows to read: that is for tables that replace whole groups.
 */
final class AssignedColumns extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.resolveOperators(new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
      @Override
      public boolean isDefinedAt(LogicalPlan node) {
        return node instanceof WriteDelta write && operation(write) != null;
      }

      @Override
      public LogicalPlan apply(LogicalPlan node) {
        WriteDelta write = (WriteDelta) node;
        operation(write).assign(assigned(write));
        return write.copy(
            write.table(), write.condition(), write.query(), write.originalTable(), write.projections(),
            Option.empty(), write.write());
      }
    });
  }

  private static RowOperation operation(WriteDelta write) {
    return write.table() instanceof DataSourceV2Relation relation
            && relation.table() instanceof RowLevelOperationTable table
            && table.operation() instanceof RowOperation operation
        ? operation : null;
  }

  private static List<String> assigned(WriteDelta write) {
    List<Attribute> columns = CollectionConverters.asJava(((LogicalPlan) write.originalTable()).output());
    Set<String> names = new LinkedHashSet<>();
    for (List<Expression> output : outputs(write.query())) {
      for (int place = 0; isUpdate(output.get(0)) && place < columns.size(); place++) {
        if (!plain(output.get(place + 1)).semanticEquals(columns.get(place))) {
          names.add(columns.get(place).name());
        }
      }
    }
    return List.copyOf(names);
  }

  /** Returns what the rows of a delta are made of: an operation, the columns of the table, and more. */
  private static List<List<Expression>> outputs(LogicalPlan query) {
    List<List<Expression>> found = new ArrayList<>();
    if (query instanceof Project project) {
      List<Expression> values = new ArrayList<>();
      CollectionConverters.asJava(project.projectList()).forEach(column -> values.add((Expression) column));
      found.add(values);
    } else if (query instanceof MergeRows merge) {
      for (Seq<Expression> output : CollectionConverters.asJava(merge.outputs())) {
        found.add(CollectionConverters.asJava(output));
      }
    } else {
      throw new IllegalStateException("a statement has the unknown form " + query.nodeName());
    }
    return found;
  }

  private static boolean isUpdate(Expression operation) {
    return plain(operation) instanceof Literal literal
        && literal.value() instanceof Integer number
        && number == RowDeltaUtils.UPDATE_OPERATION();
  }

  private static Expression plain(Expression expression) {
    return expression instanceof Alias alias ? alias.child() : expression;
  }
}
