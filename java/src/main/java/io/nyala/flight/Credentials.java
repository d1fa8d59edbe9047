package io.nyala.flight;

import java.io.File;
import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.sparkproject.connect.grpc.ChannelCredentials;
import org.sparkproject.connect.grpc.Metadata;
import org.sparkproject.connect.grpc.TlsChannelCredentials;

/**
 * The credentials of a client, and the signs by which it knows the right server: from options of Spark, and else from
 * the environment of each process. Null: not given.
 */
public record Credentials(String token, String tokenFile, String tlsRoots, String clientCert, String clientKey)
    implements Serializable {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final int TOKEN_LENGTH_MAX = 8000;

  /** Returns the credentials among options, whose names have lower case. */
  public static Credentials of(Map<String, String> options) {
    Credentials given = new Credentials(
        options.get("token"), options.get("tokenfile"), options.get("tlsroots"), options.get("clientcert"),
        options.get("clientkey"));
    if (given.token != null && given.tokenFile != null) {
      throw invalid("token and tokenFile exclude each other: keep one of them");
    }
    if (given.clientKey != null && given.clientCert == null) {
      throw invalid("clientKey is the key of a certificate: set clientCert too");
    }
    return given;
  }

  /** Returns the same with what this process' environment has of the rest. */
  Credentials here() {
    boolean hasToken = token != null || tokenFile != null;
    String shown = hasToken ? token : variable("NYALA_TOKEN");
    String file = hasToken || shown != null ? tokenFile : variable("NYALA_TOKEN_FILE");
    boolean hasPair = clientCert != null;
    return new Credentials(
        shown, file, tlsRoots != null ? tlsRoots : variable("NYALA_TLS_ROOTS"),
        hasPair ? clientCert : variable("NYALA_CLIENT_CERT"), hasPair ? clientKey : variable("NYALA_CLIENT_KEY"));
  }

  /** Checks that a server at {@code location} may see them. */
  void checkHidden(Location location) {
    if (location.isTls() || location.isHere()) {
      return;
    }
    if (token != null || tokenFile != null) {
      throw invalid("the connection to " + location + " would send the token unencrypted: use grpc+tls://, or give "
          + "no token");
    }
    if (clientCert != null) {
      throw invalid("the connection to " + location + " would present no client certificate, and be unencrypted: "
          + "use grpc+tls://, or give no certificate");
    }
  }

  /** Returns the headers of one call; a file with a token is read each time. */
  Metadata headers() {
    Metadata headers = new Metadata();
    if (token != null || tokenFile != null) {
      headers.put(AUTHORIZATION, "Bearer " + checked(token != null ? token : tokenOfFile()));
    }
    return headers;
  }

  ChannelCredentials tls() {
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    try {
      if (tlsRoots != null) {
        tls.trustManager(pem(tlsRoots));
      }
      if (clientCert != null) {
        tls.keyManager(pem(clientCert), pem(clientKey == null ? clientCert : clientKey));
      }
      return tls.build();
    } catch (IOException error) {
      throw invalid("a file of certificates cannot be read: " + error.getMessage());
    }
  }

  /** Shows no secret. */
  @Override
  public String toString() {
    return "Credentials";
  }

  private String tokenOfFile() {
    try {
      return Files.readString(Path.of(tokenFile), StandardCharsets.UTF_8).strip();
    } catch (IOException error) {
      throw invalid("the token file " + tokenFile + " cannot be read: " + error);
    }
  }

  private static String checked(String token) {
    if (token.isEmpty() || token.length() > TOKEN_LENGTH_MAX) {
      throw invalid("a token has 1 to 8,000 ASCII characters");
    }
    if (!token.chars().allMatch(letter -> letter > ' ' && letter < 0x7f)) {
      throw invalid("a token has ASCII characters only, and no spaces or control characters");
    }
    return token;
  }

  private static File pem(String path) throws IOException {
    if (!Files.readString(Path.of(path), StandardCharsets.ISO_8859_1).contains("-----BEGIN ")) {
      throw invalid(path + " is not PEM");
    }
    return new File(path);
  }

  private static String variable(String name) {
    String value = System.getenv(name);
    return value == null || value.isEmpty() ? null : value;
  }

  private static StoreException invalid(String said) {
    return new StoreException(StoreException.INVALID_ARGUMENT, said);
  }
}
