package io.nyala.flight;

import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import org.apache.spark.TaskContext;

/**
 * The waits of a task, until Spark stops it: by an interrupt of its thread, or, as is the default, by a flag that the
 * task must poll.
 */
final class Waits {
  private static final long LOOK_MILLIS = 100; // how often to ask

  private Waits() {}

  static void sleep(double seconds) {
    long left = (long) (seconds * 1000);
    do {
      long now = Math.min(left, LOOK_MILLIS);
      untilStopped(() -> {
        Thread.sleep(now);
        return null;
      });
      left -= now;
    } while (left > 0);
  }

  /** Takes something off a queue; null if nothing comes in a moment. */
  static <T> T moment(BlockingQueue<T> queue) {
    return untilStopped(() -> queue.poll(LOOK_MILLIS, TimeUnit.MILLISECONDS));
  }

  /** Takes a permit; false if there is none in a moment. */
  static boolean moment(Semaphore permits) {
    return untilStopped(() -> permits.tryAcquire(LOOK_MILLIS, TimeUnit.MILLISECONDS));
  }

  static void lock(Lock lock) {
    while (!untilStopped(() -> lock.tryLock(LOOK_MILLIS, TimeUnit.MILLISECONDS))) {
      // looks whether the task is stopped
    }
  }

  private static <T> T untilStopped(Waiting<T> waiting) {
    TaskContext task = TaskContext.get();
    if (task != null && task.isInterrupted()) {
      throw stopped();
    }
    try {
      return waiting.end();
    } catch (InterruptedException error) {
      Thread.currentThread().interrupt();
      throw stopped();
    }
  }

  private static StoreException stopped() {
    return new StoreException(StoreException.CANCELLED, "the task was stopped");
  }

  private interface Waiting<T> {
    T end() throws InterruptedException;
  }
}
