package io.nyala.flight;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.List;

/** Reads and writes JSON: all that is said to a server and that is not rows. */
public final class Json {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private Json() {}

  public static String of(Object value) {
    try {
      return MAPPER.writeValueAsString(value);
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }

  public static ObjectNode object() {
    return MAPPER.createObjectNode();
  }

  public static JsonNode read(String text) throws JsonProcessingException {
    return MAPPER.readTree(text);
  }

  /** Returns all values in a text, one after the other. */
  static List<JsonNode> readAll(String text) throws IOException {
    return MAPPER.readerFor(JsonNode.class).<JsonNode>readValues(text).readAll();
  }

  public static JsonNode tree(Object value) {
    return MAPPER.valueToTree(value);
  }
}
