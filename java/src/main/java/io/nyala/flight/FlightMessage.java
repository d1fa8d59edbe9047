package io.nyala.flight;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.sparkproject.connect.grpc.HasByteBuffer;

/**
 * One FlightData: a message of an Arrow IPC stream, with its body in memory of Arrow. Whoever has it closes it.
 *
 * <p>The body is copied once, from the pieces in which the network delivered it.
 */
final class FlightMessage implements AutoCloseable {
  private static final int HEADER = 2;
  private static final int APP_METADATA = 3;
  private static final int BODY = 1000;

  private byte[] header = {};
  private byte[] metadata = {};
  private ArrowBuf body;

  private FlightMessage() {}

  static FlightMessage read(InputStream in, BufferAllocator allocator) throws IOException {
    FlightMessage message = new FlightMessage();
    try {
      Protobuf.Reader fields = new Protobuf.Reader(in);
      for (int field = fields.next(); field != 0; field = fields.next()) {
        switch (field) {
          case HEADER -> message.header = fields.bytes();
          case APP_METADATA -> message.metadata = fields.bytes();
          case BODY -> message.body(in, fields.length(), allocator);
          default -> fields.skip();
        }
      }
      return message;
    } catch (IOException | RuntimeException error) {
      message.close();
      throw error;
    }
  }

  /** Returns the flatbuffer that says what the body is. */
  ByteBuffer header() {
    return ByteBuffer.wrap(header);
  }

  byte[] metadata() {
    return metadata;
  }

  long bodyBytes() {
    return body == null ? 0 : body.capacity();
  }

  /** Returns the body, which is the caller's to release from now on. */
  ArrowBuf takeBody(BufferAllocator allocator) {
    ArrowBuf taken = body == null ? allocator.getEmpty() : body;
    body = null;
    return taken;
  }

  @Override
  public void close() {
    if (body != null) {
      body.close();
      body = null;
    }
  }

  private void body(InputStream in, int length, BufferAllocator allocator) throws IOException {
    close(); // the last of several counts
    body = allocator.buffer(length);
    ByteBuffer target = body.nioBuffer(0, length);
    if (in instanceof HasByteBuffer pieces && pieces.byteBufferSupported()) {
      while (target.hasRemaining()) {
        ByteBuffer piece = pieces.getByteBuffer();
        if (piece == null) {
          throw new EOFException();
        }
        int size = Math.min(piece.remaining(), target.remaining());
        target.put(piece.limit(piece.position() + size));
        in.skipNBytes(size);
      }
    } else {
      byte[] chunk = new byte[Math.min(length, 1 << 16)];
      while (target.hasRemaining()) {
        int size = in.read(chunk, 0, Math.min(chunk.length, target.remaining()));
        if (size < 0) {
          throw new EOFException();
        }
        target.put(chunk, 0, size);
      }
    }
  }
}
