package io.nyala.spark.options;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.flight.Json;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Cells as the JSON of defaults and bounds: of constants of SQL, and of texts. */
public final class CellJson {
  private static final long MICROS = 1_000_000;
  private static final DateTimeFormatter SECONDS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss");
  private static final DateTimeFormatter FRACTIONS = DateTimeFormatter.ofPattern("uuuu-MM-dd'T'HH:mm:ss.SSSSSS");
  private static final int YEAR_MIN = 1; // years out of these are numbers
  private static final int YEAR_MAX = 9999;

  private CellJson() {}

  /** Returns the cell of a constant; null of NULL. */
  static JsonNode of(Literal<?> constant) {
    Object value = constant.value();
    if (value instanceof UTF8String || value instanceof Decimal) {
      return Json.tree(value.toString());
    }
    if (value instanceof Float || value instanceof Double) {
      return number(value.toString()); // 0.1 of a float is 0.1
    }
    if (constant.dataType() instanceof BinaryType && value instanceof byte[] bytes) {
      return Json.tree(Map.of("base64", Base64.getEncoder().encodeToString(bytes)));
    }
    if (constant.dataType() instanceof DateType && value instanceof Integer days) {
      LocalDate day = LocalDate.ofEpochDay(days);
      return Json.tree(isOfCalendar(day.getYear()) ? (Object) day.toString() : days);
    }
    if (constant.dataType() instanceof TimestampType && value instanceof Long micros) {
      Instant moment = Instant.ofEpochSecond(Math.floorDiv(micros, MICROS), Math.floorMod(micros, MICROS) * 1000);
      LocalDateTime inUtc = LocalDateTime.ofInstant(moment, ZoneOffset.UTC);
      DateTimeFormatter form = micros % MICROS == 0 ? SECONDS : FRACTIONS;
      return Json.tree(isOfCalendar(inUtc.getYear()) ? (Object) inUtc.format(form) : micros);
    }
    return Json.tree(value);
  }

  /** Returns the cell that a text means in a column of a type of the store; the store checks it. */
  public static JsonNode of(String text, String typeWord) {
    String bare = text.strip();
    try {
      if (typeWord.startsWith("int")) {
        return Json.tree(Long.parseLong(bare));
      }
      if (typeWord.equals("float") || typeWord.equals("double")) {
        return number(bare);
      }
    } catch (NumberFormatException notOne) {
      return Json.tree(text);
    }
    if (typeWord.equals("bool") && (bare.equalsIgnoreCase("true") || bare.equalsIgnoreCase("false"))) {
      return Json.tree(Boolean.parseBoolean(bare));
    }
    boolean isText = typeWord.equals("string") || typeWord.startsWith("varchar") || typeWord.equals("json")
        || typeWord.equals("binary");
    return Json.tree(isText ? text : bare);
  }

  private static JsonNode number(String text) {
    double value = Double.parseDouble(text);
    if (Double.isFinite(value)) {
      return Json.tree(value);
    }
    return Json.tree(Map.of("float", Double.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf"));
  }

  private static boolean isOfCalendar(int year) {
    return year >= YEAR_MIN && year <= YEAR_MAX;
  }
}
