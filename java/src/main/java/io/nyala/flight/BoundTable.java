package io.nyala.flight;

import java.io.Serializable;

/** A table of a store: the server refuses to write to another one that has its name by then. */
public record BoundTable(String name, long id) implements Serializable {}
