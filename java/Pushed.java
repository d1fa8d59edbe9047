package io.nyala.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;

/**
 * What the store does instead of Spark in one scan: conditions as texts, and measures or the first rows of an order,
 * which may be null.
 */
record Pushed(List<String> filters, Measures measures, TopRows top) {
  /** Whether the answer is one row, whatever the table has. */
  boolean isOneRow() {
    return measures != null && measures.groups().isEmpty();
  }

  /** Asks for what options cannot say: groups, and the first rows of an order. */
  void putInto(ObjectNode scan) {
    if (measures != null && !measures.groups().isEmpty()) {
      measures.groups().forEach(scan.putArray("group_by")::add);
      scan.put("partial", true);
    }
    if (top != null) {
      top.putInto(scan);
    }
  }
}
