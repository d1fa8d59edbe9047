package io.nyala.spark.read;

import io.nyala.flight.Credentials;
import io.nyala.flight.ScanParts;
import io.nyala.flight.StoreIdentity;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * The facts that all tasks share: where and by which store it was planned, the columns that Spark expects, their places
 * among those of the scan, and the session's time zone. It goes to the executors.
 */
record PartReaderFactory(
    String uri, Credentials credentials, StoreIdentity planned, StructType schema, int[] places, String zone)
    implements PartitionReaderFactory {
  /** One task: parts of a scan at a fixed snapshot. */
  private sealed interface Task extends InputPartition {
    List<ScanParts.Part> parts();
  }

  record Parts(List<ScanParts.Part> parts) implements Task {}

  /** One whose rows are all in some buckets. */
  record KeyedPart(ScanParts.Part part, List<Integer> buckets) implements Task, HasPartitionKey {
    @Override
    public List<ScanParts.Part> parts() {
      return List.of(part);
    }

    @Override
    public InternalRow partitionKey() {
      return new GenericInternalRow(buckets.toArray());
    }
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new TaskReader(this, ((Task) partition).parts());
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("parts are read in columns");
  }
}
