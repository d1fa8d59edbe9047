package io.nyala.flight;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Schema;

/** A planned scan: its columns, its snapshot, and the parts that make it up, each of which any process can read. */
public record ScanParts(Schema schema, long snapshot, List<Part> parts) {
  /** One part: a ticket, and the locations of the server that has its tablet; none: of the server that planned. */
  public record Part(String ticket, List<String> locations) implements Serializable {}

  /** Returns the plan in a FlightInfo. */
  static ScanParts of(byte[] info) throws IOException {
    Schema schema = null;
    long snapshot = 0;
    List<Part> parts = new ArrayList<>();
    Protobuf.Reader fields = new Protobuf.Reader(info);
    for (int field = fields.next(); field != 0; field = fields.next()) {
      switch (field) {
        case 1 -> schema = schema(fields.bytes());
        case 3 -> parts.add(part(fields.bytes()));
        case 7 -> snapshot = Json.read(fields.text()).path("snapshot").asLong();
        default -> fields.skip();
      }
    }
    return new ScanParts(schema, snapshot, parts);
  }

  private static Schema schema(byte[] message) throws IOException {
    return MessageSerializer.deserializeSchema(
        new ReadChannel(Channels.newChannel(new ByteArrayInputStream(message))));
  }

  private static Part part(byte[] endpoint) throws IOException {
    String ticket = "";
    ArrayList<String> locations = new ArrayList<>();
    Protobuf.Reader fields = new Protobuf.Reader(endpoint);
    for (int field = fields.next(); field != 0; field = fields.next()) {
      switch (field) {
        case 1 -> ticket = text(fields.bytes());
        case 2 -> locations.add(text(fields.bytes()));
        default -> fields.skip();
      }
    }
    return new Part(ticket, locations);
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
