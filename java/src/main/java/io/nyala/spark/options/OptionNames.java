package io.nyala.spark.options;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.Json;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** The names of options and properties, in groups: {@code options.json}, which the source in Python reads, too. */
final class OptionNames {
  private static final JsonNode GROUPS = read();

  private OptionNames() {}

  /** Returns the names of some groups, one group after the other. */
  static List<String> of(String... groups) {
    return Stream.of(groups)
        .flatMap(group -> StreamSupport.stream(GROUPS.required(group).spliterator(), false))
        .map(JsonNode::asText)
        .toList();
  }

  /** Returns the same in lower case, as a {@code CaseInsensitiveStringMap} has its keys. */
  static List<String> lower(String... groups) {
    return of(groups).stream().map(name -> name.toLowerCase(Locale.ROOT)).toList();
  }

  private static JsonNode read() {
    try (InputStream file = OptionNames.class.getResourceAsStream("options.json")) {
      return Json.read(new String(file.readAllBytes(), StandardCharsets.UTF_8));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
