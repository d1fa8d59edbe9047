package io.nyala.flight;

import java.io.IOException;
import java.util.List;
import org.apache.arrow.compression.CommonsCompressionFactory;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorLoader;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The batches of one part as vectors. The vectors are the same for all batches: {@code next} replaces their cells,
 * without copying them. For one thread.
 */
public final class BatchDecoder implements AutoCloseable {
  private static final BufferAllocator ALLOCATOR = Connection.ALLOCATOR;
  private static final ArrowType UTC_MOMENT =
      new ArrowType.Timestamp(TimeUnit.MICROSECOND, "UTC");

  private final ScanReader reader;
  private final VectorSchemaRoot root;
  private final VectorLoader loader;

  public BatchDecoder(ScanReader reader) {
    this.reader = reader;
    try {
      root = VectorSchemaRoot.create(withZones(reader.schema()), ALLOCATOR);
    } catch (RuntimeException error) {
      reader.close();
      throw error;
    }
    loader = new VectorLoader(root, CommonsCompressionFactory.INSTANCE);
  }

  /** Returns the columns, in the order of the scan. */
  public List<FieldVector> vectors() {
    return root.getFieldVectors();
  }

  /** Takes the next batch into the vectors; returns its number of rows, or -1 at the end. */
  public int next() {
    try (FlightMessage message = reader.next()) {
      if (message == null) {
        return -1;
      }
      Message head = Message.getRootAsMessage(message.header());
      if (head.headerType() != MessageHeader.RecordBatch) {
        throw new StoreException("INTERNAL", "the server sent a message that is not a record batch");
      }
      RecordBatch batch = (RecordBatch) head.header(new RecordBatch());
      try (ArrowRecordBatch cells = MessageSerializer.deserializeRecordBatch(batch, message.takeBody(ALLOCATOR))) {
        loader.load(cells);
      } catch (IOException error) {
        throw new StoreException("INTERNAL", "a batch is not valid: " + error.getMessage());
      }
      return root.getRowCount();
    }
  }

  @Override
  public void close() {
    root.close();
    reader.close();
  }

  /** Returns the schema with timestamps as what they are: moments, which the server counts in UTC. */
  private static Schema withZones(Schema schema) {
    return new Schema(schema.getFields().stream().map(BatchDecoder::withZone).toList());
  }

  private static Field withZone(Field field) {
    boolean isMoment = field.getType() instanceof ArrowType.Timestamp;
    ArrowType type = isMoment ? UTC_MOMENT : field.getType();
    List<Field> parts = field.getChildren().stream().map(BatchDecoder::withZone).toList();
    return new Field(field.getName(), new FieldType(field.isNullable(), type, null), parts);
  }
}
