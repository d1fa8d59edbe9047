package io.nyala.spark.read;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.ScanParts;
import java.util.List;
import java.util.function.UnaryOperator;

/**
 * The store's work instead of Spark's in one scan: conditions as texts, and measures or the first rows, which may
 * be null.
 */
record Pushed(List<String> filters, Measures measures, FirstRows first) {
  /** Whether the answer is one row, whatever the table has. */
  boolean isOneRow() {
    return measures != null && measures.groups().isEmpty();
  }

  /** Returns the same with other conditions. */
  Pushed with(List<String> conditions) {
    return new Pushed(conditions, measures, first);
  }

  /** Asks for the rows of the user's condition, which may be null, and of the others, with the store's names. */
  void putWhere(ObjectNode scan, String ofUser, UnaryOperator<String> names) {
    if (!filters.isEmpty()) {
      String all = FilterText.renamed(String.join(" AND ", filters), names);
      scan.put("where", ofUser == null ? all : "(" + ofUser + "\n) AND " + all); // the user's may end in a comment
    }
  }

  /** Asks for measures, by groups, or for the first rows. */
  void putInto(ObjectNode scan) {
    if (measures != null) {
      ObjectNode asked = scan.putObject("aggregate");
      measures.byName().forEach((name, pair) -> pair.forEach(asked.putArray(name)::add));
    }
    if (measures != null && !measures.groups().isEmpty()) {
      measures.groups().forEach(scan.putArray("group_by")::add);
      scan.put("partial", true);
    }
    if (first != null && !isFirstOfEachPart(scan)) {
      first.putInto(scan);
    }
  }

  /**
   * Returns as much of a plan as the scan needs. The first rows of a condition may be the last that are looked at: several
   * tasks look for them, each in its part, and Spark starts more while it has too few.
   */
  ScanParts of(ScanParts plan, ObjectNode scan) {
    return isFirstOfEachPart(scan) ? plan.limited(first.limit()) : plan;
  }

  /** Returns how much of a scan of some size is read. */
  ScanParts.Size limited(ScanParts.Size whole) {
    return first == null ? whole : whole.limited(first.limit());
  }

  private boolean isFirstOfEachPart(ObjectNode scan) {
    return first != null && first.order().isEmpty() && scan.hasNonNull("where");
  }
}
