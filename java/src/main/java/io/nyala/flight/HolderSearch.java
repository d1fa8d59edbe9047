package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;

/**
 * One look for that one of several processes that has a store. Each says who has it; whoever is said to have it must
 * say so itself, and of several the one with the latest claim counts ({@code clients/flight/holder_client.py}).
 */
final class HolderSearch {
  /** A process that does not say within this time who has the store may be down. */
  static final double ASK_SECONDS = 1;

  private final String uri;
  private final List<String> given;
  private final Credentials credentials;
  private final StoreIdentity store;

  HolderSearch(String uri, Credentials credentials, StoreIdentity store) {
    this.uri = uri;
    this.given = Location.all(uri);
    this.credentials = credentials;
    this.store = store;
  }

  /** Returns the connection to the process that has it. Throws UNAVAILABLE if there is none now. */
  Connection holder() {
    Map<String, JsonNode> told = new LinkedHashMap<>();
    Map<String, StoreException> errors = new LinkedHashMap<>();
    for (String location : given) {
      where(location, told, errors);
    }
    for (JsonNode each : List.copyOf(told.values())) {
      for (JsonNode named : each.path("holder").path("locations")) {
        String location = named.asText();
        if (!told.containsKey(location) && !errors.containsKey(location) && isLikeGiven(location)) {
          where(location, told, errors);
        }
      }
    }
    List<String> holders = told.keySet().stream()
        .filter(location -> told.get(location).path("state").asText().equals("holder"))
        .sorted((a, b) -> Long.compare(epoch(told.get(b)), epoch(told.get(a))))
        .toList();
    for (String location : holders) {
      Connection found = Connection.to(location, credentials);
      try {
        JsonNode health = found.ask("health", null, ASK_SECONDS, any -> {});
        store.check(StoreIdentity.of(health), location);
        if (!health.path("state").asText().equals("standby")) {
          return found;
        }
      } catch (StoreException error) {
        told.remove(location);
        put(errors, location, error);
      }
    }
    throw nobody(told, errors);
  }

  /** Returns the error where nobody has the store. What a location says that was only named refuses nothing. */
  private StoreException nobody(Map<String, JsonNode> told, Map<String, StoreException> errors) {
    StoreException refusal = given.stream()
        .map(errors::get)
        .filter(error -> error != null && !error.is(StoreException.UNAVAILABLE))
        .findFirst()
        .orElse(null);
    boolean isHopeless = told.isEmpty() && errors.values().stream().noneMatch(e -> e.is(StoreException.UNAVAILABLE));
    if (refusal != null && isHopeless) {
      return refusal;
    }
    StringJoiner why = new StringJoiner("; ");
    errors.values().forEach(error -> why.add(error.said()));
    told.keySet().forEach(location -> why.add(location + ": it is a standby"));
    ArrayList<String> awaited = told.isEmpty() ? null : new ArrayList<>();
    return StoreException.away("no process has the store at " + uri + ": " + why, refusal, awaited);
  }

  private void where(String location, Map<String, JsonNode> told, Map<String, StoreException> errors) {
    try {
      JsonNode said = Connection.to(location, credentials).ask("where", null, ASK_SECONDS, any -> {});
      String name = said.path("name").asText("");
      if (store.name().isEmpty() || store.name().equals(name)) {
        told.put(location, said);
      } else { // claims of stores with other names do not compare
        errors.put(location, new StoreException(
            StoreException.INVALID_ARGUMENT,
            location + " serves another store: " + (name.isEmpty() ? "a directory" : name) + ", not " + store.name()));
      }
    } catch (StoreException error) {
      put(errors, location, error);
    }
  }

  private static void put(Map<String, StoreException> errors, String location, StoreException error) {
    if (error.is(StoreException.CANCELLED)) {
      throw error;
    }
    errors.put(location, error);
  }

  /** Returns whether a location that a process named may be asked: never one without TLS in place of one with it. */
  private boolean isLikeGiven(String location) {
    String scheme = Location.of(location).scheme();
    return given.stream().anyMatch(each -> Location.of(each).scheme().equals(scheme));
  }

  private static long epoch(JsonNode whereabouts) {
    return whereabouts.path("holder").path("epoch").asLong(0);
  }
}
