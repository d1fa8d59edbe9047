package io.nyala.spark;

import io.nyala.spark.options.ColumnMark;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.write.InsertMark;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.V2WriteCommand;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.catalog.CatalogManager;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Tells each of our tables that is written to whether the write is an SQL statement, and which columns it leaves out:
 * Python does not write these.
 *
 * <p>If the columns of a query differ from the table's, Spark puts a projection on top, in which only the filled
 * columns refer to no column of the query. It gives each the metadata of the table's column, which ours have: so the
 * projection cannot be the user's own that selects a literal.
 */
final class WrittenColumns extends Rule<LogicalPlan> {
  private final SparkSession session;

  WrittenColumns(SparkSession session) {
    this.session = session;
  }

  @Override
  public LogicalPlan apply(LogicalPlan plan) {
    return plan.resolveOperators(new AbstractPartialFunction<LogicalPlan, LogicalPlan>() {
      @Override
      public boolean isDefinedAt(LogicalPlan node) {
        return node instanceof V2WriteCommand write
            && write.table() instanceof DataSourceV2Relation relation
            && relation.table() instanceof NyalaTable table
            && !table.isTold();
      }

      @Override
      public LogicalPlan apply(LogicalPlan node) {
        return told((V2WriteCommand) node);
      }
    });
  }

  private LogicalPlan told(V2WriteCommand write) {
    DataSourceV2Relation relation = (DataSourceV2Relation) write.table();
    if (isOfMerge(write, relation)) {
      return with(write, relation, ((NyalaTable) relation.table()).toldOfMerge());
    }
    // Only df.write.format("nyala").save(), and writes to views, write to a table without a name.
    boolean isStatement = InsertMark.isOn((LogicalPlan) write) || relation.identifier().isDefined();
    NyalaTable table = ((NyalaTable) relation.table()).told(isStatement, isStatement ? leftOut(write) : List.of());
    return with(write, named(relation), table);
  }

  /** Gives a table without a name the one that it has in a catalog, so that Spark renews what it keeps of that. */
  private DataSourceV2Relation named(DataSourceV2Relation relation) {
    CaseInsensitiveStringMap options = ((NyalaTable) relation.table()).options();
    if (relation.identifier().isDefined() || !options.containsKey("uri")) {
      return relation;
    }
    Identifier name = NyalaCatalog.named(ReadOptions.table(options));
    List<NyalaCatalog> ofStore = catalogs(options.get("uri"));
    Optional<NyalaCatalog> keeper = ofStore.stream().filter(each -> isKept(each, name)).findFirst();
    return keeper.or(() -> ofStore.stream().findFirst())
        .map(catalog -> relation.copy(
            relation.table(), relation.output(), Option.apply(catalog), Option.apply(name), relation.options(),
            relation.timeTravelSpec()))
        .orElse(relation);
  }

  /** Returns our catalogs of a store that the session has used. */
  private List<NyalaCatalog> catalogs(String uri) {
    CatalogManager catalogs = session.sessionState().catalogManager();
    List<NyalaCatalog> ofStore = new ArrayList<>();
    for (String each : CollectionConverters.asJava(catalogs.listCatalogs(Option.empty()))) {
      if (catalogs.catalog(each) instanceof NyalaCatalog catalog && catalog.isOf(uri)) {
        ofStore.add(catalog);
      }
    }
    return ofStore;
  }

  /** Whether Spark keeps the rows of a table that it knows by this name. */
  private boolean isKept(NyalaCatalog catalog, Identifier name) {
    return session.sharedState().cacheManager().lookupCachedTable(
        catalog, name, Option.empty(), CaseInsensitiveStringMap.empty(), session.sessionState().conf().resolver())
        .isDefined();
  }

  private static LogicalPlan with(V2WriteCommand write, DataSourceV2Relation relation, NyalaTable table) {
    return (LogicalPlan) write.withNewTable(relation.copy(
        table, relation.output(), relation.catalog(), relation.identifier(), relation.options(),
        relation.timeTravelSpec()));
  }

  /** Whether the query reads the very relation that is written to, as only Spark's form of a {@code MERGE} does. */
  private static boolean isOfMerge(V2WriteCommand write, DataSourceV2Relation relation) {
    return write.query().exists(node -> node instanceof DataSourceV2Relation read
        && !read.outputSet().intersect(relation.outputSet()).isEmpty());
  }

  private static List<String> leftOut(V2WriteCommand write) {
    List<String> names = new ArrayList<>();
    if (write.query() instanceof Project top) {
      for (NamedExpression column : CollectionConverters.asJava(top.projectList())) {
        if (column instanceof Alias alias && alias.references().isEmpty() && ColumnMark.isOn(column.metadata())) {
          names.add(column.name());
        }
      }
    }
    return names;
  }
}
