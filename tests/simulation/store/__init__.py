"""The store in one thread: writers, readers, maintenance and power failures race by a seed, every answer checked."""
