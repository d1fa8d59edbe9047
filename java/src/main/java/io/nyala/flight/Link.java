package io.nyala.flight;

import org.sparkproject.connect.grpc.Attributes;
import org.sparkproject.connect.grpc.ClientCall;
import org.sparkproject.connect.grpc.ClientTransportFilter;

/**
 * One connection of the network, from its beginning to its end. gRPC makes a new one without a word where the old one
 * broke, and then another process may listen at the same address. Thread safe.
 */
final class Link {
  /** Gives each connection of a channel its link. */
  static final ClientTransportFilter FILTER = new ClientTransportFilter() {
    @Override
    public Attributes transportReady(Attributes attributes) {
      return attributes.toBuilder().set(KEY, new Link()).build();
    }
  };

  private static final Attributes.Key<Link> KEY = Attributes.Key.create("nyala-link");

  /** The store of the process at its other end; null: it was not asked yet. */
  volatile StoreIdentity store;
  /** Whether nobody answered there: what waits for an answer waits in vain. */
  volatile boolean isLost;

  private Link() {}

  /** Returns the link that a call has taken; null: none yet. */
  static Link of(ClientCall<?, ?> call) {
    return call.getAttributes().get(KEY);
  }
}
