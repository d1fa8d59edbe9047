package io.nyala.spark.write;

import io.nyala.flight.StagingPut;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.stream.Stream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * Stages the changes of one task: deletes, updates and inserts, each as parts of their own, since all deletes of a
 * statement come before its updates, and these before its inserts. For one thread.
 */
final class RowChanges implements DeltaWriter<InternalRow> {
  private final WriteTarget target;
  private final WriteTarget.Columns columns;
  private final String attempt;
  private final int[] keyPlaces;
  private RowBatches deletes;
  private RowBatches moves;
  private RowBatches updates;
  private RowBatches inserts;

  RowChanges(WriteTarget target, int partition, long task) {
    this.target = target;
    columns = target.columns();
    TaskContext context = TaskContext.get();
    attempt = (context == null ? 0 : context.stageId()) + "-" + partition + "-" + task;
    keyPlaces = columns.mayMoveRows()
        ? Stream.of(columns.id().fieldNames()).mapToInt(columns.row()::fieldIndex).toArray() : new int[0];
  }

  @Override
  public void delete(InternalRow metadata, InternalRow key) {
    if (deletes == null) {
      // A MERGE that deletes each match has a row once for each.
      deletes = open("delete_ignore", columns.id(), List.of(columns.id().fieldNames()));
    }
    deletes.add(key);
  }

  @Override
  public void update(InternalRow metadata, InternalRow key, InternalRow row) {
    if (isMoved(key, row)) {
      if (moves == null) {
        moves = open("delete", columns.id(), List.of(columns.id().fieldNames()));
      }
      moves.add(key);
      insert(row);
      return;
    }
    if (updates == null) {
      updates = open("update", columns.row(), columns.updated());
    }
    updates.add(row);
  }

  @Override
  public void insert(InternalRow row) {
    if (inserts == null) {
      inserts = open(columns.insertion(), columns.row(), columns.inserted());
    }
    inserts.add(row);
  }

  @Override
  public WriterCommitMessage commit() {
    List<String> deleted = new ArrayList<>(finished(deletes));
    deleted.addAll(finished(moves));
    return new Staged(deleted, finished(updates), finished(inserts));
  }

  @Override
  public void abort() {
    close();
  }

  @Override
  public void close() {
    for (RowBatches each : new RowBatches[] {deletes, moves, updates, inserts}) {
      if (each != null) {
        each.close();
      }
    }
    deletes = moves = updates = inserts = null;
  }

  private RowBatches open(String operation, StructType schema, List<String> names) {
    return new RowBatches(schema, names, arrow -> new StagingPut(
        target.store(), target.transaction().name(), attempt + "-" + operation, target.table(), operation, arrow));
  }

  private static List<String> finished(RowBatches rows) {
    return rows == null ? List.of() : rows.finish();
  }

  private boolean isMoved(InternalRow key, InternalRow row) {
    for (int place = 0; place < keyPlaces.length; place++) {
      DataType type = columns.id().apply(place).dataType();
      if (!Objects.deepEquals(key.get(place, type), row.get(keyPlaces[place], type))) {
        return true;
      }
    }
    return false;
  }

  /** The parts of a task that are staged. */
  record Staged(List<String> deletes, List<String> updates, List<String> inserts) implements WriterCommitMessage {}
}
