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
 * <p>Batches are kept until the server has them on disk, and sent again if the connection breaks or the server restarts.
 * So a long part is sent as several, each answered before the next begins.
 */
public final class StagingPut implements AutoCloseable {
  private static final long KEPT_BYTES_MAX = 32 << 20;

  private final FlightStore store;
  private final ServerWait wait;
  private final String transaction;
  private final String name;
  private final ObjectNode command;
  private final byte[] columns;
  private final List<byte[]> kept = new ArrayList<>();
  private final List<String> parts = new ArrayList<>();
  private Answers<byte[]> stream;
  private int sent;
  private long keptBytes;
  private long keptRows;

  /** {@code columns} is the schema, as the head of an Arrow message; {@code name} is unique to this attempt. */
  public StagingPut(
      FlightStore store, String transaction, String name, String table, String operation, byte[] columns) {
    this.store = store;
    this.wait = store.serverWait(true);
    this.transaction = transaction;
    this.name = name;
    this.columns = columns;
    command = Json.object().put("table", table).put("op", operation);
  }

  /** Sends a batch, as the head and the body of an Arrow message. Waits while the server takes no more. */
  public void send(byte[] head, byte[] body, int rows) {
    kept.add(new Protobuf.Writer().bytes(2, head).bytes(1000, body).done());
    keptBytes += body.length;
    keptRows += rows;
    patiently(this::push);
    if (keptBytes >= KEPT_BYTES_MAX) {
      endPart();
    }
  }

  /** Returns the names of the parts that have the rows, in order, once all of them are on the server's disk. */
  public List<String> finish() {
    if (!kept.isEmpty()) {
      endPart();
    }
    return List.copyOf(parts);
  }

  /** Ends a stream that was not finished: the server discards what it brought. */
  @Override
  public void close() {
    if (stream != null) {
      stream.close();
      stream = null;
    }
  }

  private void endPart() {
    patiently(() -> {
      push();
      String end = Json.of(Json.object().put("commit", true).put("rows", keptRows));
      stream.send(new Protobuf.Writer().text(3, end).done());
      stream.endRequests();
      check(stream.only());
    });
    close();
    parts.add(partName());
    kept.clear();
    keptBytes = 0;
    keptRows = 0;
    wait.reset();
  }

  private void push() {
    if (stream == null) {
      command.putObject("stage").put("transaction", transaction).put("part", partName());
      stream = store.put();
      sent = 0;
      byte[] told = Connection.descriptor(Json.of(command).getBytes(StandardCharsets.UTF_8));
      stream.send(new Protobuf.Writer().bytes(1, told).bytes(2, columns).done());
    }
    while (sent < kept.size()) {
      stream.send(kept.get(sent));
      sent++;
    }
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
    throw new StoreException("INTERNAL", "the server did not say that it has the staged rows");
  }

  /** Does something that can be done again from the kept batches. */
  private void patiently(Runnable step) {
    while (true) {
      try {
        step.run();
        return;
      } catch (StoreException error) {
        close();
        wait.after(error);
      }
    }
  }
}
