package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * A store behind Arrow Flight: at one location, or at that one of several whose process has it. It waits
 * for a server that restarts, and follows a store to the next process, but takes no other store for it. Thread safe.
 */
public final class FlightStore {
  private static final Map<Known, FlightStore> ALL = new ConcurrentHashMap<>();

  private final String uri;
  private final Credentials credentials;
  private final List<String> given;
  private final boolean isOne;
  private final ReentrantLock looking = new ReentrantLock();
  private volatile Connection here;
  private volatile StoreIdentity store;
  private volatile boolean wasReached;
  private long lookedAt = System.nanoTime();
  private StoreException lookedInVain;

  private FlightStore(Known known, boolean isOne) {
    uri = known.uri;
    credentials = known.credentials;
    store = known.store;
    given = Location.all(uri);
    here = Connection.to(given.get(0), credentials);
    wasReached = !store.equals(StoreIdentity.UNKNOWN); // by who planned, maybe in another process
    this.isOne = isOne || given.size() > 1 || wasReached;
  }

  /**
   * Returns this process' way to an address, which may be several locations between commas; then it is the store that
   * was found there first. One location may have another store for the next query. Nothing is sent yet.
   */
  public static FlightStore at(String uri, Credentials credentials) {
    return at(uri, credentials, StoreIdentity.UNKNOWN);
  }

  /** Returns this process' way to a store that was at an address. */
  public static FlightStore at(String uri, Credentials credentials, StoreIdentity store) {
    return ALL.computeIfAbsent(new Known(uri, credentials, store), known -> new FlightStore(known, false));
  }

  /** Returns the store that answers first at an address, and no other after it. */
  static FlightStore oneAt(String uri, Credentials credentials) {
    return new FlightStore(new Known(uri, credentials, StoreIdentity.UNKNOWN), true);
  }

  /**
   * Returns the answer to an action. A server that this process never reached is not waited for: the address may be
   * wrong.
   */
  public JsonNode ask(String action, Object body) {
    return patiently(() -> {
      Connection at = here;
      return at.ask(action, body, 0, isStoreAt(at));
    });
  }

  /** Returns the answers to an action that has several. */
  public List<JsonNode> pages(String action, Object body) {
    return patiently(() -> {
      Connection at = here;
      return at.pages(action, body, isStoreAt(at));
    });
  }

  /**
   * Returns the answer to an action that must not be done twice. First the process says that it is there, and which
   * store it has. The action is sent again only where it was certainly not done.
   */
  public JsonNode change(String action, Object body) {
    ServerWait wait = serverWait(true);
    while (true) {
      ask("health", null);
      try {
        Connection at = here;
        return at.ask(action, body, 0, isStoreAt(at));
      } catch (StoreException error) {
        if (error.isAnswerLost()) {
          throw new StoreException(StoreException.UNAVAILABLE,
              error.said() + "; it is unknown whether " + action
                  + " was carried out: check, and repeat it if it was not");
        }
        if (error.locations() == null && error.retryAfterSeconds() == 0) {
          throw error;
        }
        wait.after(error);
      }
    }
  }

  /** Returns the parts of a scan, all at one snapshot, of the store {@code same}. Nothing is read yet. */
  public ScanParts plan(JsonNode scan, StoreIdentity same) {
    byte[] command = Json.of(scan).getBytes(StandardCharsets.UTF_8);
    return patiently(() -> {
      Connection at = here;
      Consumer<Link> isSame = link -> same.check(at.storeAt(link), at.location());
      try (Answers<byte[]> answers = at.flightInfo(command, isStoreAt(at).andThen(isSame))) {
        byte[] info = answers.only();
        return ScanParts.of(info == null ? new byte[0] : info, at.storeAt(answers.link()), this::storeOf);
      } catch (IOException error) {
        throw new StoreException("INTERNAL", "the plan of the server is not valid: " + error.getMessage());
      }
    });
  }

  /** Starts to read a ticket, once. */
  Answers<FlightMessage> read(JsonNode ticket) {
    Connection at = here;
    return at.read(Json.of(ticket).getBytes(StandardCharsets.UTF_8), isStoreAt(at));
  }

  /** Starts to write, once. */
  Answers<byte[]> put() {
    Connection at = here;
    return at.put(isStoreAt(at));
  }

  /** Returns a moment at which every write that was acknowledged is visible. */
  public ScanParts.Moment now() {
    return patiently(() -> {
      Connection at = here;
      try (Answers<byte[]> answers = at.action("now", new byte[0], 0, isStoreAt(at))) {
        long timestamp = Connection.json("now", answers).path("timestamp").asLong();
        return new ScanParts.Moment(timestamp, at.storeAt(answers.link()));
      }
    });
  }

  /** Returns the health of the process that has the store: one that stands by does not say of which servers it is. */
  public JsonNode holderHealth() {
    return patiently(() -> {
      Connection at = here;
      JsonNode health = at.ask("health", null, 0, isStoreAt(at));
      if (health.path("state").asText().equals("standby")) {
        throw StoreException.away(
            at.location() + " is a standby of the store, and does not have it", null, new ArrayList<>());
      }
      return health;
    });
  }

  /** Waits for an answer of the process that is asked now. */
  void awaitAnswer() {
    Connection at = here;
    at.ask("health", null, Connection.HEALTH_SECONDS, isStoreAt(at));
  }

  /** Returns the store of another server; unknown if nobody there says it now. */
  private StoreIdentity storeOf(List<String> locations) {
    for (String location : Location.all(String.join(",", locations))) {
      try {
        Connection at = Connection.to(location, credentials);
        return StoreIdentity.of(at.ask("health", null, HolderSearch.ASK_SECONDS, any -> {}));
      } catch (StoreException error) {
        if (!error.is(StoreException.UNAVAILABLE)) {
          throw error;
        }
      }
    }
    return StoreIdentity.UNKNOWN; // tasks wait for it
  }

  boolean isAlone() {
    return given.size() == 1;
  }

  Credentials credentials() {
    return credentials;
  }

  /** Goes to the process that has the store. One task looks at a time; what it finds counts for those that wait. */
  void follow() {
    long began = System.nanoTime();
    Waits.lock(looking);
    try {
      if (lookedAt - began < 0) {
        lookedInVain = null;
        here = new HolderSearch(uri, credentials, store).holder();
        lookedAt = System.nanoTime();
      } else if (lookedInVain != null) {
        throw lookedInVain;
      }
    } catch (StoreException error) {
      if (!error.is(StoreException.CANCELLED)) { // another task may look
        lookedInVain = error;
        lookedAt = System.nanoTime();
      }
      throw error;
    } finally {
      looking.unlock();
    }
  }

  /** Returns what checks links to a process. If it has another store, one of several locations may have the right. */
  private Consumer<Link> isStoreAt(Connection at) {
    return link -> {
      try {
        check(at, at.storeAt(link));
      } catch (StoreException refusal) {
        boolean isFinal = isAlone() || !refusal.is(StoreException.INVALID_ARGUMENT);
        throw isFinal ? refusal : StoreException.away(refusal.said(), refusal);
      }
    };
  }

  private synchronized void check(Connection at, StoreIdentity found) {
    store.check(found, at.location());
    if (isOne) {
      store = store.with(found);
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

  private record Known(String uri, Credentials credentials, StoreIdentity store) {}
}
