package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Names the servers that may have a tablet that has left that of its plan, over and over for as long as moves take. */
final class MovedTablet {
  private static final double[] PAUSES = {0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2};

  private final String table;
  private final List<FlightStore> servers = new ArrayList<>();
  private int asked;

  MovedTablet(FlightStore planner, String table) {
    this.table = table;
    JsonNode placement;
    try {
      placement = planner.ask("placement", null);
    } catch (StoreException error) {
      if (error.is(StoreException.NOT_FOUND)) {
        return; // it shares its tables with no other
      }
      throw error;
    }
    for (JsonNode locations : placement.path("servers")) {
      List<String> each = new ArrayList<>();
      locations.forEach(location -> each.add(location.asText()));
      servers.add(FlightStore.oneAt(String.join(",", each), planner.credentials()));
    }
  }

  /** Returns the server to ask next after an error, or throws it. */
  FlightStore nextServer(StoreException error) {
    int round = servers.isEmpty() ? PAUSES.length + 1 : asked / servers.size();
    if (round > PAUSES.length) {
      throw new StoreException(
          StoreException.WRONG_SERVER, error.said() + "; no server has the tablet to read: plan the scan again");
    }
    if (asked > 0 && asked % servers.size() == 0) {
      for (FlightStore each : servers) {
        settle(each);
      }
      Waits.sleep(PAUSES[round - 1]);
    }
    return servers.get(asked++ % servers.size());
  }

  /** Makes a server take over what it was handed. */
  private void settle(FlightStore server) {
    try {
      server.ask("tablets", Map.of("table", table));
    } catch (StoreException error) {
      if (error.is(StoreException.UNAVAILABLE)) {
        throw error;
      }
    }
  }
}
