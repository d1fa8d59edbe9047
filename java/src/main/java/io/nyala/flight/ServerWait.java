package io.nyala.flight;

/**
 * Decides whether and when to ask again after a server could not take a request, as clients in Python do
 * ({@code clients/flight/server_wait.py}). For one request or stream, and one thread.
 */
final class ServerWait {
  private static final double[] PAUSES = {0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2, 3.2, 3.2}; // a restart
  private static final double FOLLOW_SECONDS = 15; // until another process has taken a store over
  private static final double FOLLOW_PAUSE_MAX = 0.5;
  private static final double PATIENCE_SECONDS = 60; // for a server that asks to wait
  private static final int RESENDS = 2;

  private final FlightStore store;
  private final boolean isPatient;
  private int resends;
  private int looks;
  private double pause;
  private double toldSeconds;
  private long began;

  ServerWait(FlightStore store, boolean isPatient) {
    this.store = store;
    this.isPatient = isPatient;
    reset();
  }

  /** Starts over with full patience, after something got through. */
  void reset() {
    resends = 0;
    looks = 0;
    pause = 0;
    toldSeconds = 0;
    began = 0;
  }

  /** Returns when it makes sense to ask again after an error, else throws it. */
  void after(StoreException error) {
    throwUnlessAway(error);
    began = began == 0 ? System.nanoTime() : began;
    boolean isElsewhere = isAwaited(error); // said by a process that does not have the store
    if (error.retryAfterSeconds() > 0 && !isElsewhere && toldSeconds < PATIENCE_SECONDS) {
      toldSeconds += error.retryAfterSeconds();
      Waits.sleep(error.retryAfterSeconds());
    } else if (isElsewhere || !store.isAlone()) {
      look(error);
    } else if (!isPatient || ++resends > RESENDS) {
      throw gaveUp(error);
    } else {
      waitForServer(error);
    }
  }

  private void waitForServer(StoreException error) {
    for (double seconds : PAUSES) {
      Waits.sleep(seconds);
      try {
        store.awaitAnswer();
        return;
      } catch (StoreException stillAway) {
        throwUnlessAway(stillAway);
      }
    }
    throw gaveUp(error);
  }

  /** Goes to that one of several processes that has the store. */
  private void look(StoreException error) {
    StoreException last = error;
    while (isPatient || isAwaited(last) ? secondsWaited() < FOLLOW_SECONDS : looks++ == 0) {
      Waits.sleep(pause);
      pause = Math.min(Math.max(2 * pause, PAUSES[0]), FOLLOW_PAUSE_MAX);
      try {
        store.follow();
        return;
      } catch (StoreException nobody) {
        throwUnlessAway(nobody);
        last = nobody;
      }
    }
    throw gaveUp(last);
  }

  /** Returns whether a process stands by for the store, or has just lost it: then somebody will have it. */
  private static boolean isAwaited(StoreException error) {
    return error.locations() != null;
  }

  private static void throwUnlessAway(StoreException error) {
    if (!error.is(StoreException.UNAVAILABLE)) {
      throw error;
    }
  }

  private StoreException gaveUp(StoreException error) {
    if (error.getCause() instanceof StoreException refusal) {
      return refusal;
    }
    double waited = secondsWaited();
    if (waited < PAUSES[0] || !error.is(StoreException.UNAVAILABLE)) {
      return error;
    }
    return new StoreException(
        StoreException.UNAVAILABLE, String.format("gave up on %s after %.1f s: %s", store, waited, error.said()));
  }

  private double secondsWaited() {
    return (System.nanoTime() - began) / 1e9;
  }
}
