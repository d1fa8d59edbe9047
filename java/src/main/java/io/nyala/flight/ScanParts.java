package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A planned scan: its columns, its moment, its estimated size, and the parts that make it up, each of which any process
 * can read. {@code isCombined} means that the only part has each group of an aggregate once.
 */
public record ScanParts(
    Schema schema, Moment moment, Size size, List<HashLevel> hash, boolean isCombined, List<Part> parts) {
  /** A snapshot, and the store that has it. */
  public record Moment(long snapshot, StoreIdentity store) {}

  /** About how much all parts have. */
  public record Size(long rows, long bytes) {
    /** Returns the size of so many of the rows, or of all if they are fewer. */
    public Size limited(long most) {
      return most >= rows ? this : new Size(most, bytes * most / rows);
    }
  }

  /** How the rows of the table are spread over buckets, the first of those of each part (docs/partitions.md). */
  public record HashLevel(List<String> columns, int buckets, int seed) {}

  /**
   * One part: a ticket, the locations of the server that has its tablet, and the store there; no locations: the server
   * that planned. About how many bytes it has.
   */
  public record Part(String ticket, List<String> locations, StoreIdentity store, long bytes) implements Serializable {
    /** Returns the bucket in each hash level of the table; none if this is not a part of one tablet. */
    public List<Integer> buckets() {
      List<Integer> found = new ArrayList<>();
      asked().path("partition").path("buckets").forEach(bucket -> found.add(bucket.asInt()));
      return found;
    }

    private Part limited(int rows) {
      return new Part(Json.of(asked().put("limit", rows)), locations, store, bytes);
    }

    private ObjectNode asked() {
      try {
        return (ObjectNode) Json.read(ticket);
      } catch (IOException error) {
        throw new StoreException("INTERNAL", "a ticket is not JSON: " + error.getMessage());
      }
    }
  }

  /** Returns the same scan with at most so many rows of each part. */
  public ScanParts limited(int rows) {
    return new ScanParts(
        schema, moment, size, hash, isCombined, parts.stream().map(part -> part.limited(rows)).toList());
  }

  /**
   * Returns the plan in a FlightInfo of a store; {@code storeOf} tells which one is at the locations of another server.
   */
  static ScanParts of(byte[] info, StoreIdentity store, Function<List<String>, StoreIdentity> storeOf)
      throws IOException {
    Schema schema = null;
    JsonNode told = Json.object();
    long rows = 0;
    long bytes = 0;
    List<Part> parts = new ArrayList<>();
    Map<List<String>, StoreIdentity> stores = new HashMap<>(Map.of(List.of(), store));
    Protobuf.Reader fields = new Protobuf.Reader(info);
    for (int field = fields.next(); field != 0; field = fields.next()) {
      switch (field) {
        case 1 -> schema = schema(fields.bytes());
        case 3 -> parts.add(part(fields.bytes(), locations -> stores.computeIfAbsent(locations, storeOf)));
        case 4 -> rows = fields.number();
        case 5 -> bytes = fields.number();
        case 7 -> told = Json.read(fields.text());
        default -> fields.skip();
      }
    }
    Moment moment = new Moment(told.path("snapshot").asLong(), store);
    JsonNode groups = told.path("groups_at_most");
    Size size = new Size(rows, bytes).limited(groups.asLong(rows));
    return new ScanParts(schema, moment, size, hash(told.path("hash")), !groups.isMissingNode(), parts);
  }

  private static List<HashLevel> hash(JsonNode levels) {
    List<HashLevel> found = new ArrayList<>();
    for (JsonNode level : levels) {
      List<String> columns = new ArrayList<>();
      level.path("hash").forEach(column -> columns.add(column.asText()));
      found.add(new HashLevel(columns, level.path("buckets").asInt(), level.path("seed").asInt()));
    }
    return found;
  }

  private static Schema schema(byte[] message) throws IOException {
    return MessageSerializer.deserializeSchema(
        new ReadChannel(Channels.newChannel(new ByteArrayInputStream(message))));
  }

  private static Part part(byte[] endpoint, Function<List<String>, StoreIdentity> storeOf) throws IOException {
    String ticket = "";
    ArrayList<String> locations = new ArrayList<>();
    JsonNode told = Json.object();
    Protobuf.Reader fields = new Protobuf.Reader(endpoint);
    for (int field = fields.next(); field != 0; field = fields.next()) {
      switch (field) {
        case 1 -> ticket = text(fields.bytes());
        case 2 -> locations.add(text(fields.bytes()));
        case 4 -> told = Json.read(fields.text());
        default -> fields.skip();
      }
    }
    return new Part(ticket, locations, storeOf.apply(locations), told.path("bytes").asLong());
  }

  /** Returns the text in the first field of a message. */
  private static String text(byte[] message) throws IOException {
    Protobuf.Reader fields = new Protobuf.Reader(message);
    String found = "";
    for (int field = fields.next(); field != 0; field = fields.next()) {
      if (field == 1) {
        found = new String(fields.bytes(), StandardCharsets.UTF_8);
      } else {
        fields.skip();
      }
    }
    return found;
  }
}
