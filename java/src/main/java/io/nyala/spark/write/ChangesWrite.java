package io.nyala.spark.write;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.FlightStore;
import io.nyala.flight.FoundDeletes;
import io.nyala.flight.ScanParts;
import io.nyala.flight.StoreException;
import io.nyala.spark.options.PlanError;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * Commits what the tasks of one statement staged: the attempts that Spark chose, all or nothing. The rows that {@code
 * replaced} finds, a scan of keys, are deleted too; it may be null. {@code moment} is when the statement read the table,
 * null if it did not. {@code truncates}: all rows are deleted first. {@code advice} is what to say where a row meets a key that
 * is there; it may be null.
 */
record ChangesWrite(
    WriteTarget target, ScanParts.Moment moment, JsonNode replaced, boolean truncates, String advice)
    implements DeltaBatchWrite {
  @Override
  public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    return target;
  }

  /**
   * Lets every attempt stage: only what the messages name is committed, one attempt of each task. Spark's coordinator
   * would deny a second attempt whose first one failed just before, until it has heard of that.
   */
  @Override
  public boolean useCommitCoordinator() {
    return false;
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    FlightStore store = target.store();
    try {
      List<String> parts = new ArrayList<>();
      if (replaced != null) {
        parts.addAll(FoundDeletes.stage(
            store, target.uri(), target.credentials(), replaced, target.transaction(), target.table()));
      }
      List<RowChanges.Staged> staged = Stream.of(messages)
          .filter(RowChanges.Staged.class::isInstance)
          .map(RowChanges.Staged.class::cast)
          .toList();
      // A row may leave its key to another, which must not meet it.
      staged.forEach(each -> parts.addAll(each.deletes()));
      staged.forEach(each -> parts.addAll(each.updates()));
      staged.forEach(each -> parts.addAll(each.inserts()));
      if (!parts.isEmpty() || truncates) {
        target.transaction().commit(
            store, parts, moment == null ? null : moment.snapshot(), truncates ? target.table() : null);
      }
    } catch (StoreException error) {
      if (moment != null) { // the statement's own, so that nobody has given the store's word for it
        throw PlanError.thrown(error
            .saying("changed after if_timestamp", "changed since the statement read it; run the statement again")
            .saying("if_timestamp", "the moment at which the statement read the table, "));
      }
      boolean isThere = advice != null && error.is(StoreException.ALREADY_PRESENT);
      throw PlanError.thrown(isThere ? error.with("; " + advice) : error);
    }
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    target.transaction().discard(target.store());
  }
}
