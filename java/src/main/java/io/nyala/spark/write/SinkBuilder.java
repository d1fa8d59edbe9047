package io.nyala.spark.write;

import io.nyala.spark.options.PlanError;
import io.nyala.spark.options.SessionExtensions;
import io.nyala.spark.read.FilterText;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.v2.python.PythonWriteBuilder;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/**
 * Writes statements with {@link RowWrite}, and with Python what it leaves to it: {@code df.write}, and streams, also in
 * the output mode {@code update}, whose rows are upserted like all others.
 */
public final class SinkBuilder
    implements SupportsOverwriteV2, SupportsDynamicOverwrite, SupportsStreamingUpdateAsAppend {
  private final PythonWriteBuilder python;
  private final boolean mayBeStatement;
  private final boolean isStatement;
  private final RowWrite rows;
  private boolean truncates;

  /**
   * {@code isStatement}: it is one, and the columns that it leaves out are known; {@code mayBeStatement}: it is one or a
   * stream, and they are not.
   */
  public SinkBuilder(PythonWriteBuilder python, boolean mayBeStatement, boolean isStatement, RowWrite rows) {
    this.python = python;
    this.mayBeStatement = mayBeStatement;
    this.isStatement = isStatement;
    this.rows = rows;
  }

  @Override
  public Write build() {
    Optional<Write> plain = isStatement ? rows.plain(truncates) : Optional.empty();
    return plain.orElseGet(() -> mayBeStatement ? new StreamOnly(python.build()) : python.build());
  }

  @Override
  public WriteBuilder truncate() {
    python.truncate();
    truncates = true;
    return this;
  }

  /** Replaces the partitions that get rows: where there are none, all rows. Settings of a session ask for it. */
  @Override
  public WriteBuilder overwriteDynamicPartitions() {
    if (rows.isPartitioned()) {
      throw PlanError.invalid("table " + rows.table().name() + " has partitions, and the store cannot replace only those "
          + "that get rows: to replace all rows set spark.sql.sources.partitionOverwriteMode=static; to replace those of a "
          + "condition use INSERT INTO ... REPLACE WHERE, or df.writeTo(...).overwrite(condition)");
    }
    return truncate();
  }

  /** Replaces the rows that the store finds by the predicates: exactly those that Spark would. */
  @Override
  public WriteBuilder overwrite(Predicate[] predicates) {
    if (mayBeStatement && rows.isUpsert()) {
      throw StreamOnly.refusal();
    }
    FilterText filterText = new FilterText(rows.table());
    List<String> texts = new ArrayList<>();
    for (Predicate predicate : predicates) {
      texts.add(filterText.of(predicate).orElseThrow(() -> new UnsupportedOperationException(
          "the store finds the rows to replace, and cannot evaluate " + predicate + ": compare columns with literals, "
              + "or use DELETE and INSERT, or MERGE")));
    }
    return rows.replacing(String.join(" AND ", texts));
  }

  /** Allows streams only: Spark fills no columns in their rows. */
  private record StreamOnly(Write write) implements Write {
    @Override
    public BatchWrite toBatch() {
      throw refusal();
    }

    static IllegalStateException refusal() {
      return new IllegalStateException(
          "Spark does not report which columns of existing rows a statement leaves out: start Spark with "
              + SessionExtensions.SETTING + "=" + SessionExtensions.NAME + ", or use df.write");
    }

    @Override
    public StreamingWrite toStreaming() {
      return write.toStreaming();
    }
  }
}
