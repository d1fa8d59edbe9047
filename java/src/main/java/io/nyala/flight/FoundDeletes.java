package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.ArrowBuf;

/** Deletes of all rows that a scan of keys finds: its messages become a part of a transaction as they come. */
public final class FoundDeletes {
  private FoundDeletes() {}

  /** Stages them; returns the names of the parts. */
  public static List<String> stage(
      FlightStore store, String uri, Credentials credentials, JsonNode scan, StagedTransaction transaction,
      BoundTable table) {
    ScanParts plan = store.plan(scan, StoreIdentity.UNKNOWN);
    List<String> staged = new ArrayList<>();
    for (int number = 0; number < plan.parts().size(); number++) {
      byte[] columns = BatchEncoder.columns(plan.schema());
      String name = "found-" + number;
      StagingPut put = new StagingPut(store, transaction.name(), name, table, "delete", columns);
      try (ScanReader found = new ScanReader(uri, credentials, plan.moment().store(), plan.parts().get(number))) {
        for (FlightMessage message = found.next(); message != null; message = found.next()) {
          pass(message, put);
        }
        staged.addAll(put.finish());
      }
    }
    return staged;
  }

  private static void pass(FlightMessage message, StagingPut put) {
    try (message; ArrowBuf body = message.takeBody(Connection.ALLOCATOR)) {
      RecordBatch batch = (RecordBatch) Message.getRootAsMessage(message.header()).header(new RecordBatch());
      if (batch.length() > 0) {
        byte[] head = new byte[message.header().remaining()];
        message.header().get(head);
        int bodyBytes = Math.toIntExact(body.capacity());
        byte[] sent = StagingPut.message(head, bodyBytes);
        body.getBytes(0, sent, sent.length - bodyBytes, bodyBytes);
        put.send(sent, Math.toIntExact(batch.length()));
      }
    }
  }
}
