/**
 * Statements that change rows: the plan of such a statement, the batches that its tasks stage, and the one commit.
 *
 * <p>What Python writes is not here: {@code df.write} and streams. It uses {@code flight}, {@code options},
 * {@code tables}, and {@code read} for conditions; only {@code io.nyala.spark} may use it. Its public classes are for
 * that package; they are no API for users.
 */
package io.nyala.spark.write;
