package io.nyala.spark.tables;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.Json;
import io.nyala.flight.StoreException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.apache.spark.sql.internal.SQLConf;

/** A job of {@code nyala job}, in a process of Python on the driver's machine, which uses the credentials of a catalog. */
public final class PythonJob {
  private static final Map<String, String> SHOWN = Map.of(
      "token", "NYALA_TOKEN", "tokenfile", "NYALA_TOKEN_FILE", "tlsroots", "NYALA_TLS_ROOTS",
      "clientcert", "NYALA_CLIENT_CERT", "clientkey", "NYALA_CLIENT_KEY");

  private PythonJob() {}

  /** Runs a job; returns what it prints. Throws a StoreException if it fails. */
  public static JsonNode run(Map<String, String> server, String job, List<String> arguments) {
    List<String> command = new ArrayList<>(List.of(python(), "-m", "nyala", "job", job));
    command.addAll(arguments);
    command.addAll(List.of("--url", server.get("uri"), "--json"));
    ProcessBuilder process = new ProcessBuilder(command);
    SHOWN.forEach((option, variable) -> {
      if (server.containsKey(option)) {
        process.environment().put(variable, server.get(option)); // arguments can be seen by all
      }
    });
    try {
      return answer(process.start(), job);
    } catch (IOException error) {
      throw new StoreException(StoreException.INVALID_ARGUMENT, "the job " + job + " needs Python with nyala on the "
          + "driver's machine (" + error.getMessage() + "): set PYSPARK_DRIVER_PYTHON there");
    }
  }

  private static JsonNode answer(Process running, String job) throws IOException {
    CompletableFuture<String> told = CompletableFuture.supplyAsync(() -> text(running.getErrorStream()));
    try {
      String printed = text(running.getInputStream());
      if (running.waitFor() == 0) {
        return Json.read(printed);
      }
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new StoreException(StoreException.CANCELLED, "the job " + job + " was interrupted");
    } finally {
      running.destroy();
    }
    String[] lines = told.join().strip().split("\n");
    String[] last = lines[lines.length - 1].split(": ", 2);
    boolean isOfStore = last.length == 2 && last[0].matches("[A-Z_]+");
    throw new StoreException(isOfStore ? last[0] : "INTERNAL", isOfStore ? last[1] : lines[lines.length - 1]);
  }

  private static String text(InputStream stream) {
    try (stream) {
      return new String(stream.readAllBytes(), StandardCharsets.UTF_8);
    } catch (IOException error) {
      return error.toString();
    }
  }

  /** Returns the Python that Spark starts on the driver. */
  private static String python() {
    SQLConf conf = SQLConf.get();
    return Stream.of(
            conf.getConfString("spark.pyspark.driver.python", null), conf.getConfString("spark.pyspark.python", null),
            System.getenv("PYSPARK_DRIVER_PYTHON"), System.getenv("PYSPARK_PYTHON"))
        .filter(Objects::nonNull)
        .findFirst()
        .orElse("python3");
  }
}
