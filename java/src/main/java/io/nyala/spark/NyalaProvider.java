package io.nyala.spark;

import io.nyala.spark.options.PythonSource;
import io.nyala.spark.options.TableOptions;
import io.nyala.spark.read.TableColumns;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** {@code format("nyala")} if this package is on the class path: Spark looks for formats in Java first. */
public final class NyalaProvider implements TableProvider, DataSourceRegister {
  @Override
  public String shortName() {
    return PythonSource.FORMAT;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return TableColumns.of(TableOptions.ofSchema(TableOptions.of(options)));
  }

  /** A user's schema is a projection. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new NyalaTable(PythonSource.FORMAT, schema, TableOptions.of(properties), false);
  }
}
