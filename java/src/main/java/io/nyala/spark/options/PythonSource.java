package io.nyala.spark.options;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The Python data source, which writes, reads streams, and says what the columns of tables with defaults are.
 *
 * <p>Spark 4.3 keeps the schema and the read plan of a Python data source in its object. So each use creates an object:
 * no plan is ever used for another query.
 */
public final class PythonSource {
  public static final String FORMAT = "nyala";

  private PythonSource() {}

  public static StructType schema(CaseInsensitiveStringMap options) {
    return fresh().inferSchema(options);
  }

  public static Scan scan(StructType schema, CaseInsensitiveStringMap options) {
    return new PythonScan(fresh(), FORMAT, schema, options, new Filter[0]);
  }

  public static PythonWriteBuilder writer(LogicalWriteInfo info) {
    return new PythonWriteBuilder(fresh(), FORMAT, info);
  }

  /** Returns options with others added; these replace options of the same names. */
  public static CaseInsensitiveStringMap with(CaseInsensitiveStringMap options, Map<String, String> more) {
    Map<String, String> all = new HashMap<>();
    options.forEach(all::put); // names in lower case
    new CaseInsensitiveStringMap(more).forEach(all::put);
    return new CaseInsensitiveStringMap(all);
  }

  private static PythonDataSourceV2 fresh() {
    checkVersion();
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(FORMAT);
    return source;
  }

  /** Rejects any Spark other than the one it was compiled against: only that was tested. */
  private static void checkVersion() {
    String built = PythonSource.class.getPackage().getImplementationVersion(); // from the jar
    String running = org.apache.spark.package$.MODULE$.SPARK_VERSION();
    if (built != null && !built.equals(running)) {
      throw new IllegalStateException(
          "the Java shim was compiled against Spark " + built + ", and this is " + running + ": build it again with "
              + "`nyala spark build-shim`, or remove its jar from spark.jars");
    }
  }
}
