package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Stages rows of one operation and one set of columns as a part of a transaction, invisibly (docs/flight.md,
 * Transactions; {@code clients/flight/staging_put.py}). For one thread.
 *
 * <p>Batches are collected and then sent at once, since a server ends a stream on which nothing comes for a minute. They
 * are kept until the server has them on disk, and sent again if the connection breaks or it restarts. So a long part is
 * sent as several, each answered before the next begins.
 */
public final class StagingPut {
  private static final long KEPT_BYTES_MAX = 16 << 20;

  private final FlightStore store;
  private final ServerWait wait;
  private final String transaction;
  private final String name;
  private final BoundTable table;
  private final ObjectNode command;
  private final byte[] columns;
  private final List<byte[]> kept = new ArrayList<>();
  private final List<String> parts = new ArrayList<>();
  private long keptBytes;
  private long keptRows;

  /** {@code columns} is the schema, as the head of an Arrow message; {@code name} is unique to this attempt. */
  public StagingPut(
      FlightStore store, String transaction, String name, BoundTable table, String operation, byte[] columns) {
    this.store = store;
    this.wait = store.serverWait(true);
    this.transaction = transaction;
    this.name = name;
    this.columns = columns;
    this.table = table;
    command = Json.object().put("table", table.name()).put("op", operation);
  }

  /** Returns a message of a stream with the head of an Arrow message; its last bytes are the body, to be filled in. */
  static byte[] message(byte[] head, int bodyBytes) {
    return new Protobuf.Writer().bytes(2, head).doneBefore(1000, bodyBytes);
  }

  /** Takes a batch, as a message of the stream. */
  void send(byte[] message, int rows) {
    kept.add(message);
    keptBytes += message.length;
    keptRows += rows;
    if (keptBytes >= KEPT_BYTES_MAX) {
      sendPart();
    }
  }

  /** Returns the names of the parts that have the rows, in order, once all of them are on the server's disk. */
  public List<String> finish() {
    if (!kept.isEmpty()) {
      sendPart();
    }
    return List.copyOf(parts);
  }

  private void sendPart() {
    command.putObject("stage").put("transaction", transaction).put("part", partName()).put("table_id", table.id());
    while (true) {
      try (Answers<byte[]> stream = store.put()) {
        byte[] told = Connection.descriptor(Json.of(command).getBytes(StandardCharsets.UTF_8));
        stream.send(new Protobuf.Writer().bytes(1, told).bytes(2, columns).done());
        kept.forEach(stream::send);
        String end = Json.of(Json.object().put("commit", true).put("rows", keptRows));
        stream.send(new Protobuf.Writer().text(3, end).done());
        stream.endRequests();
        check(stream.only());
        break;
      } catch (StoreException error) {
        wait.after(error);
      }
    }
    wait.reset();
    parts.add(partName());
    kept.clear();
    keptBytes = 0;
    keptRows = 0;
  }

  private String partName() {
    return parts.isEmpty() ? name : name + "~" + parts.size();
  }

  private void check(byte[] answer) {
    try {
      JsonNode said = Json.read(new String(Connection.field(answer, 1), StandardCharsets.UTF_8));
      if (said.path("rows").asLong() == keptRows) {
        return;
      }
    } catch (IOException error) {
      // said below
    }
    throw new StoreException("INTERNAL", "the server did not confirm the staged rows");
  }
}
