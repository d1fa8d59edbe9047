package io.nyala.spark.tables;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table of a store, or its changes, as scans and writes see it. */
public interface StoreTable extends SupportsRead {
  /** Returns the columns by the types of their cells: a {@code varchar(n)} has strings. */
  @Override
  @SuppressWarnings("deprecation") // Spark has its own columns() by it
  StructType schema();

  /** Returns the options that say where the table is, and which part of it is read. */
  CaseInsensitiveStringMap options();

  /** Whether a catalog of ours has the table. */
  boolean isOfCatalog();

  /** Returns what the store says of a table of a catalog; null of changes, and elsewhere. */
  TableDescription about();
}
