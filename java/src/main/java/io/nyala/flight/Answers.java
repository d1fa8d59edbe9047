package io.nyala.flight;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.function.Consumer;
import org.sparkproject.connect.grpc.ClientCall;
import org.sparkproject.connect.grpc.Metadata;
import org.sparkproject.connect.grpc.Status;

/**
 * The messages that answer one call, in order, and the way to send its requests. A few are fetched ahead. For one
 * thread.
 */
final class Answers<T> implements AutoCloseable {
  private static final int AHEAD = 3; // messages of about 2 MB

  private final Connection connection;
  private final ClientCall<byte[], T> call;
  private final Consumer<Link> check;
  private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>();
  private final Semaphore ready = new Semaphore(0);
  private boolean isChecked;
  private boolean isClosed;

  /** {@code check} throws if the process at the end of a link is not the one to ask; nothing is returned before. */
  Answers(Connection connection, ClientCall<byte[], T> call, Metadata headers, Consumer<Link> check) {
    this.connection = connection;
    this.call = call;
    this.check = check;
    call.start(new Arrivals(), headers);
    call.request(AHEAD);
  }

  /** Sends the only request of a call. */
  Answers<T> to(byte[] request) {
    call.sendMessage(request);
    call.halfClose();
    return this;
  }

  /** Sends one of several requests; waits until there is room for it. Throws the error with which the call ended. */
  void send(byte[] request) {
    Heartbeat heartbeat = new Heartbeat(connection, call);
    while (!call.isReady()) {
      if (arrived.peek() instanceof End) {
        next();
        throw new StoreException(StoreException.UNAVAILABLE, "the server ended a stream before its end");
      }
      if (!Waits.moment(ready)) {
        heartbeat.beat();
      }
    }
    call.sendMessage(request);
  }

  /** Tells that no request follows. */
  void endRequests() {
    call.halfClose();
  }

  /** Returns the next message, which the caller closes if it can be closed; null at the end. */
  @SuppressWarnings("unchecked")
  T next() {
    Object found = awaited();
    End end = found instanceof End last ? last : null;
    StoreException error = end == null || end.status.isOk()
        ? null : StoreException.of(end.status, end.trailers, connection.location());
    if (!isChecked && (error == null || link() != null && !error.is(StoreException.UNAVAILABLE))) {
      try {
        check.accept(link());
      } catch (RuntimeException refused) {
        drop(found);
        throw refused;
      }
      isChecked = true;
    }
    if (error != null) {
      throw error;
    }
    if (end != null) {
      arrived.add(end); // whoever asks again gets the same
      return null;
    }
    call.request(1);
    return (T) found;
  }

  /** Returns the first message, once the call has ended well; null if there is none. */
  T only() {
    T found = next();
    while (found != null && next() != null) {
      // there is one
    }
    return found;
  }

  /** Returns the link by which the answer comes, once some of it has come. */
  Link link() {
    return Link.of(call);
  }

  @Override
  public void close() {
    synchronized (this) {
      isClosed = true;
    }
    call.cancel("no more is needed", null);
    for (Object each = arrived.poll(); each != null; each = arrived.poll()) {
      drop(each);
    }
  }

  private Object awaited() {
    Object found = arrived.poll();
    Heartbeat heartbeat = found == null ? new Heartbeat(connection, call) : null;
    while (found == null) {
      found = Waits.moment(arrived);
      if (found == null) {
        heartbeat.beat();
      }
    }
    return found;
  }

  private static void drop(Object message) {
    if (message instanceof FlightMessage rows) {
      rows.close();
    }
  }

  private record End(Status status, Metadata trailers) {}

  private final class Arrivals extends ClientCall.Listener<T> {
    @Override
    public void onMessage(T message) {
      synchronized (Answers.this) {
        if (isClosed) {
          drop(message);
        } else {
          arrived.add(message);
        }
      }
    }

    @Override
    public void onReady() {
      ready.release();
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      arrived.add(new End(status, trailers));
      ready.release();
    }
  }
}
