package io.nyala.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.ScanParts;
import java.util.List;

/**
 * What the store does instead of Spark in one scan: conditions as texts, and measures or the first rows, which may
 * be null.
 */
record Pushed(List<String> filters, Measures measures, FirstRows first) {
  /** Whether the answer is one row, whatever the table has. */
  boolean isOneRow() {
    return measures != null && measures.groups().isEmpty();
  }

  /** Asks for what options cannot say: groups, and the first rows. */
  void putInto(ObjectNode scan) {
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
    if (first == null || first.limit() >= whole.rows()) {
      return whole;
    }
    return new ScanParts.Size(first.limit(), whole.bytes() * first.limit() / whole.rows());
  }

  private boolean isFirstOfEachPart(ObjectNode scan) {
    return first != null && first.order().isEmpty() && scan.hasNonNull("where");
  }
}
