/**
 * The door for Spark: the catalog, the data source and the extensions, and the tables that the first two give to
 * Spark.
 *
 * <p>How rows are read, written or defined is not here but in the packages below, all of which it may use; none uses
 * it. {@link io.nyala.spark.NyalaCatalog}, {@link io.nyala.spark.NyalaProvider} and
 * {@link io.nyala.spark.NyalaExtensions} are the API: users name them in settings of Spark, so they stay where they
 * are.
 */
package io.nyala.spark;
