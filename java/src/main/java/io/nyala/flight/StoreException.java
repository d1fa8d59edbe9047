package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.sparkproject.connect.grpc.Metadata;
import org.sparkproject.connect.grpc.Status;

/** An error of a store, or of the way to it: its code word tells what to do (docs/flight.md, Errors). */
public final class StoreException extends RuntimeException {
  public static final String UNAVAILABLE = "UNAVAILABLE";
  public static final String CANCELLED = "CANCELLED";
  public static final String INVALID_ARGUMENT = "INVALID_ARGUMENT";
  public static final String NOT_FOUND = "NOT_FOUND";
  public static final String ALREADY_PRESENT = "ALREADY_PRESENT";
  public static final String WRONG_SERVER = "WRONG_SERVER";

  private static final long serialVersionUID = 1;
  private static final Metadata.Key<byte[]> DETAILS =
      Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);
  private static final Pattern CODED =
      Pattern.compile("([A-Z]+(?:_[A-Z]+)*): (.*?)(?:\\. Detail: .*)?", Pattern.DOTALL);

  private final String code;
  private final String said;
  private final double retryAfterSeconds;
  private final ArrayList<String> locations;
  private boolean isAnswerLost;

  public StoreException(String code, String said) {
    this(code, said, 0, null);
  }

  private StoreException(String code, String said, double retryAfterSeconds, ArrayList<String> locations) {
    super(code + ": " + said);
    this.code = code;
    this.said = said;
    this.retryAfterSeconds = retryAfterSeconds;
    this.locations = locations;
  }

  /** Returns an error that waiting may mend; if it does not, {@code refusal} is the error, unless it is null. */
  static StoreException away(String said, StoreException refusal) {
    return away(said, refusal, null);
  }

  /** Returns the error where nobody has a store. {@code locations}: as {@code locations()} of the result. */
  static StoreException away(String said, StoreException refusal, ArrayList<String> locations) {
    StoreException away = new StoreException(UNAVAILABLE, said, 0, locations);
    away.initCause(refusal);
    return away;
  }

  /** Returns the same error with other words in the place of some. */
  public StoreException saying(String words, String others) {
    return new StoreException(code, said.replace(words, others), retryAfterSeconds, locations);
  }

  /** Returns the same error with more words. */
  public StoreException with(String more) {
    return new StoreException(code, said + more, retryAfterSeconds, locations);
  }

  /** Returns whether the way to the server broke, so that nobody knows whether it did what it was asked to. */
  boolean isAnswerLost() {
    return isAnswerLost;
  }

  public boolean is(String word) {
    return code.equals(word);
  }

  /** Returns the message without the code word. */
  public String said() {
    return said;
  }

  /** Returns after how many seconds the server asks to try again; 0 if it does not. */
  double retryAfterSeconds() {
    return retryAfterSeconds;
  }

  /** Returns where the store may be, if the process that answered does not have it; else null. */
  List<String> locations() {
    return locations;
  }

  /** Returns the error that the end of a call to the server at {@code location} means. */
  static StoreException of(Status status, Metadata trailers, String location) {
    byte[] details = trailers == null ? null : trailers.get(DETAILS);
    StoreException sent = details == null ? null : sent(details);
    if (sent != null) {
      return sent;
    }
    String text = status.getDescription() == null ? status.getCode().toString() : status.getDescription();
    Matcher coded = CODED.matcher(text);
    if (coded.matches()) {
      return new StoreException(coded.group(1), coded.group(2));
    }
    return switch (status.getCode()) {
      case UNAVAILABLE, DEADLINE_EXCEEDED, CANCELLED -> lost(
          "the server at " + location + " cannot be reached: " + reason(status, text));
      case UNAUTHENTICATED -> new StoreException("UNAUTHENTICATED", text);
      default -> new StoreException("INTERNAL", text);
    };
  }

  /** Returns an error of the way to a server, which may have done what it was asked to. */
  static StoreException lost(String said) {
    StoreException lost = new StoreException(UNAVAILABLE, said);
    lost.isAnswerLost = true;
    return lost;
  }

  private static StoreException sent(byte[] details) {
    try {
      JsonNode said = Json.read(new String(details, StandardCharsets.UTF_8));
      ArrayList<String> locations = null;
      if (said.hasNonNull("locations")) {
        locations = new ArrayList<>();
        for (JsonNode location : said.get("locations")) {
          locations.add(location.asText());
        }
      }
      double seconds = said.path("retry_after_seconds").asDouble(0);
      return new StoreException(said.path("code").asText(), said.path("message").asText(), seconds, locations);
    } catch (IOException notOurs) {
      return null;
    }
  }

  private static String reason(Status status, String text) {
    Throwable cause = status.getCause();
    while (cause != null && cause.getCause() != null) {
      cause = cause.getCause();
    }
    return cause == null || cause.getMessage() == null ? text : cause.getMessage();
  }
}
