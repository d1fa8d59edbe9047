package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.MessageHeader;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * Reads one part of a scan, each row once, even if the server restarts or the tablet moves. For one thread.
 *
 * <p>The server marks some batches with a key: all rows below it have come. Batches are passed on up to the last mark;
 * if the stream breaks, the others are dropped, and the same ticket is read from the mark on, at the same snapshot
 * (docs/flight.md, Resuming a scan; {@code clients/flight/scan_reader.py}).
 */
public final class ScanReader implements AutoCloseable {
  /** Rows that wait for a mark. Beyond this they are passed on without one, and a broken stream is an error. */
  private static final long HELD_BYTES_MAX = 256 << 20;

  private final FlightStore planner;
  private final ObjectNode rest;
  private final Deque<FlightMessage> held = new ArrayDeque<>();
  private final Deque<FlightMessage> ready = new ArrayDeque<>();
  private FlightStore server;
  private ServerWait wait;
  private MovedTablet moved;
  private Answers<FlightMessage> stream;
  private Schema schema;
  private long heldBytes;
  private boolean isCut;
  private boolean isDone;

  /** {@code uri} is where the part was planned, by the store {@code planned}. */
  public ScanReader(String uri, Credentials credentials, StoreIdentity planned, ScanParts.Part part) {
    planner = FlightStore.at(uri, credentials, planned);
    String location = part.locations().isEmpty() ? uri : String.join(",", part.locations());
    goTo(FlightStore.at(location, credentials, part.store()));
    try {
      rest = (ObjectNode) Json.read(part.ticket());
    } catch (IOException error) {
      throw new StoreException(StoreException.INVALID_ARGUMENT, "a ticket is not JSON: " + error.getMessage());
    }
    if (!rest.has("aggregate")) {
      rest.put("marks", true);
    }
  }

  /** Returns the next record batch, which the caller closes; null at the end. */
  FlightMessage next() {
    while (ready.isEmpty() && !isDone) {
      try {
        read();
      } catch (StoreException error) {
        drop();
        recover(error);
      }
    }
    return ready.poll();
  }

  /** Returns the columns of the batches; waits for the server's answer. */
  Schema schema() {
    while (schema == null) {
      FlightMessage first = next();
      if (first != null) {
        ready.addFirst(first);
      } else if (schema == null) {
        throw new StoreException("INTERNAL", "the server ended a stream before its schema");
      }
    }
    return schema;
  }

  @Override
  public void close() {
    drop();
    ready.forEach(FlightMessage::close);
    ready.clear();
    isDone = true;
  }

  /** Takes one message off the stream. */
  private void read() {
    if (stream == null) {
      stream = server.read(rest);
    }
    FlightMessage message = stream.next();
    if (message == null) {
      isDone = true;
      passOn();
      return;
    }
    Message head = Message.getRootAsMessage(message.header());
    if (head.headerType() == MessageHeader.Schema) {
      message.close();
      begin(MessageSerializer.deserializeSchema(head));
      return;
    }
    held.add(message);
    heldBytes += message.bodyBytes();
    if (message.metadata().length > 0) {
      goOnAt(message.metadata());
      passOn();
    } else if (heldBytes > HELD_BYTES_MAX) {
      isCut = true;
      passOn();
    }
  }

  private void begin(Schema columns) {
    if (schema != null && !schema.equals(columns)) {
      throw new StoreException(
          "CONFLICT",
          "table " + rest.path("table").asText() + " was read with the columns " + schema + ", and the rest has "
              + columns + ": read it again");
    }
    schema = columns;
  }

  private void goOnAt(byte[] mark) {
    JsonNode said;
    try {
      said = Json.read(new String(mark, StandardCharsets.UTF_8));
    } catch (IOException error) {
      throw new StoreException("INTERNAL", "a mark is not JSON: " + error.getMessage());
    }
    rest.set("key_lower", said.get("below"));
    if (rest.get("changes") instanceof ObjectNode changes) {
      changes.set("until", said.get("snapshot"));
    } else {
      rest.set("as_of", said.get("snapshot"));
    }
    if (rest.hasNonNull("limit")) {
      long rows = held.stream().mapToLong(ScanReader::rows).sum();
      rest.put("limit", rest.get("limit").asLong() - rows);
    }
    rest.put("offset", 0);
    isCut = false;
    wait.reset();
  }

  private static long rows(FlightMessage message) {
    return ((RecordBatch) Message.getRootAsMessage(message.header()).header(new RecordBatch())).length();
  }

  private void passOn() {
    ready.addAll(held);
    held.clear();
    heldBytes = 0;
  }

  /** Forgets what would come again. */
  private void drop() {
    if (stream != null) {
      stream.close();
      stream = null;
    }
    held.forEach(FlightMessage::close);
    held.clear();
    heldBytes = 0;
  }

  private void recover(StoreException error) {
    if (isCut) {
      throw error;
    }
    boolean isElsewhere = error.is(StoreException.WRONG_SERVER)
        || moved != null && error.is(StoreException.NOT_FOUND); // a server without the table
    if (!isElsewhere) {
      wait.after(error);
      return;
    }
    if (moved == null) {
      if (!rest.has("partition")) {
        throw error;
      }
      moved = new MovedTablet(planner, rest.path("table").asText());
    }
    // The number of the tablet and the digest of the columns mean something only to the server that planned.
    rest.remove(List.of("planned", "tablet", "lease"));
    goTo(moved.nextServer(error));
  }

  private void goTo(FlightStore next) {
    server = next;
    wait = next.serverWait(true);
  }
}
