package io.nyala.spark.write;

import io.nyala.flight.BoundTable;
import io.nyala.flight.Credentials;
import io.nyala.flight.FlightStore;
import io.nyala.flight.StagedTransaction;
import io.nyala.flight.StoreIdentity;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.types.StructType;

/** The transaction into which a statement's tasks stage rows. It goes to the executors. */
record WriteTarget(
    String uri, Credentials credentials, StoreIdentity identity, StagedTransaction transaction, BoundTable table,
    Columns columns)
    implements DeltaWriterFactory {
  /**
   * What is sent: {@code id} are the columns of the key, {@code row} those of whole rows, {@code updated} those of rows
   * that are updated, the key among them, and {@code inserted} those of new rows, by the operation {@code insertion}.
   * {@code mayMoveRows}: an update may give a row another key.
   */
  record Columns(
      StructType id, StructType row, List<String> updated, boolean mayMoveRows, String insertion,
      List<String> inserted)
      implements Serializable {}

  FlightStore store() {
    return FlightStore.at(uri, credentials, identity);
  }

  @Override
  public DeltaWriter<InternalRow> createWriter(int partition, long task) {
    return new RowChanges(this, partition, task);
  }
}
