/**
 * A client of Arrow Flight for stores: connections, plans of scans, their messages, staged writes, actions. It needs
 * only jars that Spark brings.
 *
 * <p>Nothing of Spark's data sources is here. All packages of the shim may use it, and it uses none of them. Its
 * public classes are for these packages; they are no API for users.
 */
package io.nyala.flight;
