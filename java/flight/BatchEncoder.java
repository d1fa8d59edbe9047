package io.nyala.flight;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.ipc.WriteChannel;
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
      ByteArrayOutputStream body = new ByteArrayOutputStream(Math.toIntExact(batch.computeBodyLength()));
      MessageSerializer.writeBatchBuffers(new WriteChannel(Channels.newChannel(body)), batch);
      put.send(head, body.toByteArray(), root.getRowCount());
    } catch (IOException error) {
      throw new StoreException("INTERNAL", "a batch cannot be written: " + error.getMessage());
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
