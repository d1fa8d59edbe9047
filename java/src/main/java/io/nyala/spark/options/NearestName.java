package io.nyala.spark.options;

import java.util.List;
import java.util.Locale;
import java.util.Optional;
import org.apache.commons.text.similarity.LevenshteinDistance;

/** The known name that is nearest to an unknown name. */
public final class NearestName {
  private NearestName() {}

  /** Returns the known name that differs from this one in few letters, whatever their case. */
  public static Optional<String> of(String name, List<String> known) {
    LevenshteinDistance near = LevenshteinDistance.getDefaultInstance();
    String low = name.toLowerCase(Locale.ROOT);
    return known.stream()
        .filter(each -> near.apply(each.toLowerCase(Locale.ROOT), low) <= 1 + name.length() / 4)
        .findFirst();
  }
}
