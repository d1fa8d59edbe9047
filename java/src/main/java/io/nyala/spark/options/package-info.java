/**
 * The words that Spark and a store exchange: options, table properties, names and types of columns, cells, errors;
 * and the ways into Spark that several packages need, such as the data source in Python and the moment of a query.
 *
 * <p>No table, scan or write is here. It uses {@code flight} alone, and all packages below {@code io.nyala.spark} may
 * use it. Its public classes are for these packages; they are no API for users.
 */
package io.nyala.spark.options;
