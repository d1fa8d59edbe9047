package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * A store behind Arrow Flight, for reading: at one location, or at that one of several whose process has it. It waits
 * for a server that restarts, and follows a store to the next process. One for each process and address; thread safe.
 */
public final class FlightStore {
  private static final Map<Known, FlightStore> ALL = new ConcurrentHashMap<>();
  private static final double ASK_SECONDS = 1; // a process that does not say who has the store may be down
  private static final double HEALTH_SECONDS = 10;

  private final String uri;
  private final Credentials credentials;
  private final List<String> given;
  private volatile Connection here;
  private volatile String storeUuid = "";
  private volatile boolean wasReached;

  private FlightStore(Known known) {
    uri = known.uri;
    credentials = known.credentials;
    given = Location.all(uri);
    here = Connection.to(given.get(0), credentials);
  }

  /** Returns the store at an address, which may be several locations between commas. Nothing is sent yet. */
  public static FlightStore at(String uri, Credentials credentials) {
    return ALL.computeIfAbsent(new Known(uri, credentials), FlightStore::new);
  }

  /**
   * Returns the answer to an action. A server that this process never reached is not waited for: the address may be
   * wrong.
   */
  public JsonNode ask(String action, Object body) {
    return patiently(() -> asked(here, action, body, 0));
  }

  /** Returns the parts of a scan, all at one snapshot. Nothing is read yet. */
  public ScanParts plan(JsonNode scan) {
    byte[] command = Json.of(scan).getBytes(StandardCharsets.UTF_8);
    return patiently(() -> {
      try {
        return ScanParts.of(here.flightInfo(command));
      } catch (IOException error) {
        throw new StoreException("INTERNAL", "the plan of the server cannot be understood: " + error.getMessage());
      }
    });
  }

  /** Starts to read a ticket, once. */
  FlightStream read(JsonNode ticket) {
    return here.read(Json.of(ticket).getBytes(StandardCharsets.UTF_8));
  }

  /** Returns the health of the process that is asked now. */
  JsonNode health() {
    return checked(here, asked(here, "health", null, HEALTH_SECONDS));
  }

  boolean isAlone() {
    return given.size() == 1;
  }

  Credentials credentials() {
    return credentials;
  }

  /**
   * Goes to the process that has the store. Each says who has it; whoever is said to have it must say so itself, and of
   * several the one with the latest claim counts.
   */
  synchronized void follow() {
    Map<String, JsonNode> told = new LinkedHashMap<>();
    StringBuilder why = new StringBuilder();
    for (String location : given) {
      where(location, told, why);
    }
    for (JsonNode each : List.copyOf(told.values())) {
      for (JsonNode named : each.path("holder").path("locations")) {
        if (!told.containsKey(named.asText()) && isLikeGiven(named.asText())) {
          where(named.asText(), told, why);
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
        JsonNode health = checked(found, asked(found, "health", null, ASK_SECONDS));
        if (!health.path("state").asText().equals("standby")) {
          here = found;
          return;
        }
      } catch (StoreException error) {
        why.append(error.said()).append("; ");
      }
    }
    throw new StoreException(StoreException.UNAVAILABLE, "no process has the store at " + uri + ": " + why);
  }

  private void where(String location, Map<String, JsonNode> told, StringBuilder why) {
    try {
      told.put(location, asked(Connection.to(location, credentials), "where", null, ASK_SECONDS));
    } catch (StoreException error) {
      why.append(error.said()).append("; ");
    }
  }

  /** Returns whether a location that a process named may be asked: never one without TLS in place of one with it. */
  private boolean isLikeGiven(String location) {
    String scheme = Location.of(location).scheme();
    return given.stream().anyMatch(each -> Location.of(each).scheme().equals(scheme));
  }

  private static long epoch(JsonNode whereabouts) {
    return whereabouts.path("holder").path("epoch").asLong(0);
  }

  /** Checks that the store is the one of before: what was asked there must not be asked of another. */
  private JsonNode checked(Connection connection, JsonNode health) {
    String uuid = health.path("store_uuid").asText("");
    if (!health.path("processes").isEmpty() || uuid.isEmpty()) {
      return health; // that of any of several processes
    }
    if (storeUuid.isEmpty()) {
      storeUuid = uuid;
    } else if (!storeUuid.equals(uuid)) {
      throw new StoreException(
          StoreException.INVALID_ARGUMENT,
          connection.location() + " has another store than the client had before: check the URL");
    }
    return health;
  }

  private static JsonNode asked(Connection connection, String action, Object body, double seconds) {
    byte[] request = body == null ? new byte[0] : Json.of(body).getBytes(StandardCharsets.UTF_8);
    ByteArrayOutputStream answer = new ByteArrayOutputStream();
    connection.action(action, request, seconds).forEach(answer::writeBytes);
    try {
      return Json.read(answer.toString(StandardCharsets.UTF_8));
    } catch (IOException error) {
      throw new StoreException("INTERNAL", "the answer to " + action + " is not JSON: " + error.getMessage());
    }
  }

  /** Returns a wait for one request, or one stream. */
  ServerWait serverWait(boolean isPatient) {
    return new ServerWait(this, isPatient || wasReached);
  }

  private <T> T patiently(Supplier<T> request) {
    ServerWait wait = null;
    while (true) {
      try {
        T answer = request.get();
        wasReached = true;
        return answer;
      } catch (StoreException error) {
        wait = wait == null ? serverWait(false) : wait;
        wait.after(error);
      }
    }
  }

  @Override
  public String toString() {
    return "the server at " + uri;
  }

  private record Known(String uri, Credentials credentials) {}
}
