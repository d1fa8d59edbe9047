package io.nyala.flight;

import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/** Vectors as the messages of a stream: the counterpart of {@link BatchDecoder}. For one thread. */
public final class BatchEncoder implements AutoCloseable {
  private final VectorSchemaRoot root;

  public BatchEncoder(Schema schema) {
    root = VectorSchemaRoot.create(schema, Connection.ALLOCATOR);
  }

  /** Returns the vectors to fill for each batch. */
  public VectorSchemaRoot root() {
    return root;
  }

  /** Returns a schema as the head of a message. */
  public static byte[] columns(Schema schema) {
    return bytes(MessageSerializer.serializeMetadata(schema, IpcOption.DEFAULT));
  }

  /** Sends the rows that the vectors have. */
  public void sendTo(StagingPut put) {
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      byte[] head = bytes(MessageSerializer.serializeMetadata(batch, IpcOption.DEFAULT));
      int bodyBytes = Math.toIntExact(batch.computeBodyLength());
      byte[] message = StagingPut.message(head, bodyBytes);
      int body = message.length - bodyBytes;
      for (int place = 0; place < batch.getBuffers().size(); place++) {
        ArrowBuf buffer = batch.getBuffers().get(place);
        int start = body + Math.toIntExact(batch.getBuffersLayout().get(place).getOffset());
        buffer.getBytes(0, message, start, Math.toIntExact(buffer.readableBytes()));
      }
      put.send(message, root.getRowCount());
    }
  }

  @Override
  public void close() {
    root.close();
  }

  private static byte[] bytes(ByteBuffer buffer) {
    byte[] found = new byte[buffer.remaining()];
    buffer.get(found);
    return found;
  }
}
