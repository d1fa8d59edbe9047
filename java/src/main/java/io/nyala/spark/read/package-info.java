/**
 * Scans: the work that a store takes over from Spark, the plan of a scan and its tasks, the cells that these read,
 * and the buckets by which Spark joins without a shuffle.
 *
 * <p>No catalog and no write is here. It uses {@code flight}, {@code options} and {@code tables}; {@code write} and
 * {@code io.nyala.spark} may use it. Its public classes are for these packages; they are no API for users.
 */
package io.nyala.spark.read;
