package io.nyala.flight;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.sparkproject.connect.grpc.ClientCall;
import org.sparkproject.connect.grpc.Metadata;
import org.sparkproject.connect.grpc.Status;

/** The messages of one DoGet, in order. A few are fetched ahead. For one thread. */
final class FlightStream implements AutoCloseable {
  private static final int AHEAD = 3; // messages of about 2 MB

  private final ClientCall<byte[], FlightMessage> call;
  private final String location;
  private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>();
  private boolean isClosed;

  FlightStream(ClientCall<byte[], FlightMessage> call, Metadata headers, byte[] request, String location) {
    this.call = call;
    this.location = location;
    call.start(new Arrivals(), headers);
    call.sendMessage(request);
    call.halfClose();
    call.request(AHEAD);
  }

  /** Returns the next message, which the caller closes; null at the end. */
  FlightMessage next() {
    Object found;
    try {
      found = arrived.take();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw new StoreException("CANCELLED", "the task was stopped");
    }
    if (found instanceof FlightMessage message) {
      call.request(1);
      return message;
    }
    arrived.add(found); // whoever asks again gets the same
    End end = (End) found;
    if (end.status.isOk()) {
      return null;
    }
    throw StoreException.of(end.status, end.trailers, location);
  }

  @Override
  public void close() {
    synchronized (this) {
      isClosed = true;
    }
    call.cancel("no more is needed", null);
    for (Object each = arrived.poll(); each != null; each = arrived.poll()) {
      if (each instanceof FlightMessage message) {
        message.close();
      }
    }
  }

  private record End(Status status, Metadata trailers) {}

  private final class Arrivals extends ClientCall.Listener<FlightMessage> {
    @Override
    public void onMessage(FlightMessage message) {
      synchronized (FlightStream.this) {
        if (isClosed) {
          message.close();
        } else {
          arrived.add(message);
        }
      }
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      arrived.add(new End(status, trailers));
    }
  }
}
