package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/** Which store a process has: the name of one in a bucket, and its uuid. What is not known is empty. */
public record StoreIdentity(String name, String uuid) implements Serializable {
  /** Nothing is known. */
  public static final StoreIdentity UNKNOWN = new StoreIdentity("", "");

  /** Returns what the health of a process says. */
  static StoreIdentity of(JsonNode health) {
    return health.path("processes").isEmpty()
        ? new StoreIdentity(health.path("name").asText(""), health.path("store_uuid").asText(""))
        : UNKNOWN; // the health is that of any of them
  }

  /** Checks that a process has this store: what was asked here must not be asked of another. */
  void check(StoreIdentity found, String location) {
    if (differ(name, found.name) || differ(uuid, found.uuid)) {
      throw new StoreException(
          StoreException.INVALID_ARGUMENT, location + " now serves another store than before: check the URL");
    }
  }

  /** Returns the same store with what is known of it from elsewhere. */
  StoreIdentity with(StoreIdentity found) {
    return new StoreIdentity(name.isEmpty() ? found.name : name, uuid.isEmpty() ? found.uuid : uuid);
  }

  private static boolean differ(String one, String other) {
    return !one.isEmpty() && !other.isEmpty() && !one.equals(other);
  }
}
