package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Serializable;
import java.util.List;
import java.util.UUID;

/** A transaction of a store: tasks stage parts of it, and whoever made it commits those that count. */
public record StagedTransaction(String name) implements Serializable {
  public static StagedTransaction create() {
    return new StagedTransaction(UUID.randomUUID().toString().replace("-", ""));
  }

  /**
   * Applies parts in their order, as one commit; {@code readAt} is the snapshot that they were made from, and null if
   * they do not depend on one: a row that changed after it is refused with CONFLICT. All rows of the table {@code
   * truncated} are deleted first, unless it is null. A commit whose answer is lost is sent again, and applied once.
   */
  public void commit(FlightStore store, List<String> parts, Long readAt, BoundTable truncated) {
    ObjectNode asked = Json.object().put("transaction", name);
    parts.forEach(asked.putArray("parts")::add);
    if (readAt != null) {
      asked.put("if_timestamp", readAt);
    }
    if (truncated != null) {
      asked.putArray("truncate").add(truncated.name());
      asked.putObject("table_ids").put(truncated.name(), truncated.id());
    }
    commit(store, asked);
  }

  /** Discards what was staged. Where that fails, as while a task still stages, the store does so an hour later. */
  public void discard(FlightStore store) {
    try {
      store.ask("abort_transaction", Json.object().put("transaction", name));
    } catch (StoreException error) {
      // Why the statement failed is more important.
    }
  }

  private void commit(FlightStore store, ObjectNode asked) {
    JsonNode result = answer(store, asked);
    long refused = result.path("error_count").asLong();
    if (refused > 0) {
      discard(store);
      throw refusal(result, refused);
    }
  }

  private JsonNode answer(FlightStore store, ObjectNode asked) {
    try {
      return store.ask("commit_transaction", asked);
    } catch (StoreException error) {
      boolean isUnknown = error.is(StoreException.UNAVAILABLE) || error.is(StoreException.CANCELLED);
      throw !isUnknown ? error : error.with(
          "; it is unknown whether it was applied: if it was, the history of the table has the transaction " + name);
    }
  }

  private static StoreException refusal(JsonNode result, long refused) {
    JsonNode first = result.path("errors").path(0);
    String more = refused == 1 ? "" : String.format(" (and %,d more)", refused - 1);
    return new StoreException(
        first.path("code").asText(),
        String.format(
            "%,d of %,d rows rejected, and nothing was applied: %s%s",
            refused, result.path("rows").asLong(), first.path("message").asText(), more));
  }
}
