package io.nyala.spark.read;

import io.nyala.flight.StoreException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.Locale;
import org.apache.arrow.memory.util.Float16;
import org.apache.arrow.vector.DurationVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.types.TimeUnit;
import org.apache.arrow.vector.types.Types.MinorType;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;

/**
 * The cells of an Arrow vector of a type that Spark does not have, as those of the type that holds them: unsigned
 * integers, half floats, times and spans of time of any unit. For one thread.
 */
final class ConvertedCells extends ArrowCells {
  private final MinorType kind;
  private final long factor; // to Spark's unit: nanoseconds of a time, microseconds of a span
  private final long divisor;

  ConvertedCells(DataType type, FieldVector vector) {
    super(type, vector);
    kind = vector.getMinorType();
    long unit = switch (kind) {
      case TIMESEC -> 1_000_000_000L;
      case TIMEMILLI -> 1_000_000L;
      case TIMEMICRO -> 1_000L;
      case DURATION -> span(((ArrowType.Duration) vector.getField().getType()).getUnit());
      default -> 1L;
    };
    factor = Math.max(unit, 1);
    divisor = unit < 1 ? 1_000L : 1L;
  }

  private static long span(TimeUnit unit) {
    return switch (unit) {
      case SECOND -> 1_000_000L;
      case MILLISECOND -> 1_000L;
      case MICROSECOND -> 1L;
      case NANOSECOND -> 0L;
    };
  }

  static boolean fits(FieldVector vector) {
    return vector instanceof DurationVector || switch (vector.getMinorType()) {
      case UINT1, UINT2, UINT4, UINT8, FLOAT2, TIMESEC, TIMEMILLI, TIMEMICRO, TIMENANO -> true;
      default -> false;
    };
  }

  @Override
  public short getShort(int row) {
    return (short) (getByte(row) & 0xff);
  }

  @Override
  public int getInt(int row) {
    return super.getShort(row) & 0xffff;
  }

  @Override
  public long getLong(int row) {
    return switch (kind) {
      case UINT4 -> Integer.toUnsignedLong(super.getInt(row));
      case TIMESEC, TIMEMILLI -> super.getInt(row) * factor;
      default -> converted(row);
    };
  }

  /** Throws a StoreException for a span that Spark's microseconds cannot hold: it is never cut. */
  private long converted(int row) {
    long cell = super.getLong(row);
    long whole = cell * factor;
    if (whole % divisor == 0 && whole / factor == cell) {
      return whole / divisor;
    }
    if (isNullAt(row)) { // Spark copies arrays with what is under their NULLs
      return 0;
    }
    throw new StoreException(
        "INVALID_ARGUMENT",
        "'" + vector.getName() + "' has a span of " + cell + " " + unitOf(vector) + ", which Spark's interval of "
            + "microseconds cannot hold: leave the column out with the option columns");
  }

  private static String unitOf(FieldVector vector) {
    return ((ArrowType.Duration) vector.getField().getType()).getUnit().name().toLowerCase(Locale.ROOT) + "s";
  }

  @Override
  public float getFloat(int row) {
    return Float16.toFloat(super.getShort(row));
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (isNullAt(row)) {
      return null;
    }
    BigInteger digits = new BigInteger(Long.toUnsignedString(super.getLong(row)));
    return Decimal.apply(new BigDecimal(digits, scale), precision, scale);
  }
}
