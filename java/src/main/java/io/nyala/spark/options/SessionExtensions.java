package io.nyala.spark.options;

import java.util.stream.Stream;
import org.apache.spark.sql.internal.SQLConf;

/** The extensions of a session, by their name: a setting of Spark names their class. */
public final class SessionExtensions {
  public static final String SETTING = "spark.sql.extensions";
  /** The class {@code NyalaExtensions}, which the rest of the shim does not need. */
  public static final String NAME = "io.nyala.spark.NyalaExtensions";

  private SessionExtensions() {}

  /** Returns whether the session of this thread uses our extensions. */
  static boolean areInUse() {
    String named = SQLConf.get().getConfString(SETTING, "");
    return Stream.of(named.split(",")).map(String::strip).anyMatch(NAME::equals);
  }
}
