package io.nyala.flight;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The address of one process: {@code grpc://host:port}, {@code grpc+tls://host:port}, {@code grpc+unix:///path}. */
record Location(String scheme, String rest) {
  private static final String TLS = "grpc+tls";
  private static final String UNIX = "grpc+unix";
  private static final Set<String> SCHEMES = Set.of("grpc", "grpc+tcp", TLS, UNIX);
  private static final Set<String> HERE = Set.of("localhost", "127.0.0.1", "[::1]");

  static Location of(String text) {
    String[] parts = text.split("://", 2);
    Location found = parts.length == 2 ? new Location(parts[0], parts[1]) : null;
    if (found == null || !SCHEMES.contains(found.scheme) || !found.isUnix() && found.port() < 0) {
      throw new StoreException(
          StoreException.INVALID_ARGUMENT, "invalid URL '" + text + "', expected one such as grpc://127.0.0.1:8815");
    }
    return found;
  }

  /**
   * Returns each location in a text once. One without a scheme takes that of the one before: {@code
   * grpc://m1:8815,m2:8815}.
   */
  static List<String> all(String text) {
    List<String> found = new ArrayList<>();
    String scheme = null;
    for (String piece : text.split(",", -1)) {
      String one = piece.strip();
      int mark = one.indexOf("://");
      if (mark >= 0) {
        scheme = one.substring(0, mark);
        found.add(one);
      } else if (one.isEmpty()) {
        throw new StoreException(StoreException.INVALID_ARGUMENT, "a location is empty in '" + text + "'");
      } else if (UNIX.equals(scheme) && !one.startsWith("/")) {
        found.add(found.remove(found.size() - 1) + "," + piece); // the name of a socket may have a comma
      } else {
        found.add(scheme == null ? one : scheme + "://" + one);
      }
    }
    return List.copyOf(new LinkedHashSet<>(found));
  }

  boolean isTls() {
    return scheme.equals(TLS);
  }

  boolean isUnix() {
    return scheme.equals(UNIX);
  }

  /** Returns whether only this machine sees what is sent. */
  boolean isHere() {
    return isUnix() || HERE.contains(host());
  }

  String host() {
    return rest.substring(0, Math.max(rest.lastIndexOf(':'), 0));
  }

  int port() {
    try {
      return Integer.parseInt(rest.substring(rest.lastIndexOf(':') + 1));
    } catch (NumberFormatException error) {
      return -1;
    }
  }

  @Override
  public String toString() {
    return scheme + "://" + rest;
  }
}
