package io.nyala.flight;

import java.util.concurrent.TimeUnit;
import org.sparkproject.connect.grpc.ClientCall;
import org.sparkproject.connect.grpc.Status;
import org.sparkproject.connect.grpc.stub.ClientCalls;
import org.sparkproject.connect.grpc.stub.StreamObserver;

/**
 * Small questions while a call waits for its answer, so that a lost machine is noticed: one that is gone without a word
 * closes no connection. For one wait, and one thread.
 */
final class Heartbeat {
  private static final long PERIOD_NANOS = TimeUnit.SECONDS.toNanos(2);
  private static final double ANSWER_SECONDS = 5;
  private static final int MISSES_MAX = 2; // in a row

  private final Connection connection;
  private final ClientCall<?, ?> waiting;
  private volatile long quietSince = System.nanoTime();
  private volatile boolean isAsking;
  private volatile int misses;

  Heartbeat(Connection connection, ClientCall<?, ?> waiting) {
    this.connection = connection;
    this.waiting = waiting;
  }

  /** Asks something if it is time to. Throws UNAVAILABLE if nobody answered: the connection is given up. */
  void beat() {
    Link link = Link.of(waiting);
    if (misses >= MISSES_MAX || link != null && link.isLost) {
      if (link != null) {
        link.isLost = true; // for all that wait there
      }
      connection.giveUp();
      throw StoreException.lost("the server at " + connection.location() + " does not answer any more");
    }
    if (!isAsking && (misses > 0 || System.nanoTime() - quietSince > PERIOD_NANOS)) {
      isAsking = true;
      ClientCalls.asyncServerStreamingCall(
          connection.actionCall(ANSWER_SECONDS), Connection.actionRequest("where", new byte[0]), new Answer());
    }
  }

  /** An error is an answer, too; where the connection is at its end, so is the call that waits. */
  private final class Answer implements StreamObserver<byte[]> {
    @Override
    public void onNext(byte[] answer) {}

    @Override
    public void onError(Throwable error) {
      ended(Status.fromThrowable(error).getCode() == Status.Code.DEADLINE_EXCEEDED ? misses + 1 : 0);
    }

    @Override
    public void onCompleted() {
      ended(0);
    }

    private void ended(int missed) {
      misses = missed;
      quietSince = System.nanoTime();
      isAsking = false;
    }
  }
}
