package io.nyala.spark.write;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
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
 * the others, immutable ones among them, are not written. Spark assigns each other column to itself; here it becomes
 * NULL instead, unless the key moves, so that it is not read either.
 *
 * <p>It also takes from them the condition by which Spark would find beforehand, by a query of its own, which groups of
 * rows to read: that is for tables that replace whole groups.
 */
public final class AssignedColumns extends Rule<LogicalPlan> {
  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.resolveOperators(new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
      @Override
      public boolean isDefinedAt(LogicalPlan node) {
        return node instanceof WriteDelta write && operation(write) != null && !operation(write).isAssigned();
      }

      @Override
      public LogicalPlan apply(LogicalPlan node) {
        WriteDelta write = (WriteDelta) node;
        RowOperation operation = operation(write);
        operation.assign(assigned(write));
        LogicalPlan query = operation.movesRows() ? write.query() : unread(write, operation);
        return write.copy(
            write.table(), write.condition(), query, write.originalTable(), write.projections(),
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

  /** Returns the query of a statement with NULL for the cells of updates that are not sent. */
  private static LogicalPlan unread(WriteDelta write, RowOperation operation) {
    List<Boolean> isSent = new ArrayList<>(List.of(true)); // the operation
    for (Attribute column : CollectionConverters.asJava(((LogicalPlan) write.originalTable()).output())) {
      isSent.add(operation.isSent(column.name()));
    }
    if (write.query() instanceof Project project) {
      List<NamedExpression> columns = new ArrayList<>(CollectionConverters.asJava(project.projectList()));
      for (int place = 0; isUpdate((Expression) columns.get(0)) && place < isSent.size(); place++) {
        if (!isSent.get(place) && columns.get(place) instanceof Alias alias) {
          columns.set(place, alias.withNewChild(Literal.create(null, alias.dataType())));
        }
      }
      return project.copy(CollectionConverters.asScala(columns).toSeq(), project.child());
    }
    MergeRows merge = (MergeRows) write.query();
    return merge.copy(
        merge.isSourceRowPresent(), merge.isTargetRowPresent(), unread(merge.matchedInstructions(), isSent),
        merge.notMatchedInstructions(), unread(merge.notMatchedBySourceInstructions(), isSent),
        merge.checkCardinality(), merge.output(), merge.child());
  }

  private static Seq<MergeRows.Instruction> unread(Seq<MergeRows.Instruction> instructions, List<Boolean> isSent) {
    List<MergeRows.Instruction> found = new ArrayList<>();
    for (MergeRows.Instruction each : CollectionConverters.asJava(instructions)) {
      found.add(each instanceof MergeRows.Keep keep && isUpdate(keep.output().apply(0)) ? unread(keep, isSent) : each);
    }
    return CollectionConverters.asScala(found).toSeq();
  }

  private static MergeRows.Keep unread(MergeRows.Keep keep, List<Boolean> isSent) {
    List<Expression> cells = new ArrayList<>(CollectionConverters.asJava(keep.output()));
    for (int place = 0; place < isSent.size(); place++) {
      if (!isSent.get(place) && cells.get(place).nullable()) { // Spark has noted already which may be NULL
        cells.set(place, Literal.create(null, cells.get(place).dataType()));
      }
    }
    return keep.copy(keep.context(), keep.condition(), CollectionConverters.asScala(cells).toSeq());
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
