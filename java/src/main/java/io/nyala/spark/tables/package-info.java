/**
 * Tables as things to define: {@code CREATE}, {@code ALTER}, {@code DROP} and {@code CALL} as actions of a store, and
 * the description of a table as Spark has it. {@link io.nyala.spark.tables.StoreTable} is a table as scans and writes
 * see it.
 *
 * <p>No rows are read or written here. It uses {@code flight} and {@code options}; {@code read}, {@code write} and
 * {@code io.nyala.spark} may use it. Its public classes are for these packages; they are no API for users.
 */
package io.nyala.spark.tables;
