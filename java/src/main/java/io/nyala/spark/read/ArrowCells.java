package io.nyala.spark.read;

import io.nyala.flight.StoreException;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.stream.Stream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * The cells of an Arrow vector, read by Spark where they lie: one class for all types, so that Java's compiler knows which
 * method it calls, and no object of Arrow's for a cell. {@code take} checks the buffers of each batch once instead of
 * at each cell. For one thread.
 */
class ArrowCells extends ColumnVector {
  private static final int OFFSET_BYTES = BaseVariableWidthVector.OFFSET_WIDTH;
  private static final int DECIMAL_BYTES = 16;

  final FieldVector vector;
  private int nulls;
  private long validity;
  private long data;
  private long offsets;

  ArrowCells(DataType type, FieldVector vector) {
    super(type);
    this.vector = vector;
  }

  /** Returns the cells of a vector as those of one of Spark's types. */
  static ArrowCells of(DataType type, FieldVector vector) {
    if (type instanceof ArrayType || type instanceof MapType || type instanceof StructType) {
      return new NestedCells(type, vector);
    }
    return ConvertedCells.fits(vector) ? new ConvertedCells(type, vector) : new ArrowCells(type, vector);
  }

  /** Takes the cells that the vector has now. Throws a StoreException if its buffers are too short for them. */
  void take(int rows) {
    takeValidity();
    ArrowBuf cells = vector.getDataBuffer();
    data = cells.memoryAddress();
    if (vector instanceof BaseVariableWidthVector) {
      ArrowBuf ends = vector.getOffsetBuffer();
      offsets = ends.memoryAddress();
      check(rows == 0 || ends.capacity() >= (rows + 1L) * OFFSET_BYTES && isRising(rows, cells.capacity()));
    } else {
      check(cells.capacity() >= bytes((BaseFixedWidthVector) vector, rows));
    }
  }

  /** Returns the vectors of moments that Spark gets as times of a clock. */
  Stream<TimeStampVector> clocks() {
    return type instanceof TimestampNTZType ? Stream.of((TimeStampVector) vector) : Stream.empty();
  }

  final void takeValidity() {
    nulls = vector.getNullCount();
    validity = vector.getValidityBuffer().memoryAddress();
  }

  private static long bytes(BaseFixedWidthVector fixed, int rows) {
    return fixed instanceof BitVector ? (rows + 7L) >> 3 : (long) rows * fixed.getTypeWidth();
  }

  private boolean isRising(int rows, long limit) {
    int last = offset(0);
    boolean isRising = last >= 0;
    for (int row = 1; row <= rows; row++) {
      int next = offset(row);
      isRising &= next >= last;
      last = next;
    }
    return isRising && last <= limit;
  }

  final void check(boolean isSound) {
    if (!isSound) {
      throw new StoreException(
          "INTERNAL", "the server sent a batch whose column '" + vector.getName() + "' is not whole: read again");
    }
  }

  private int offset(int row) {
    return Platform.getInt(null, offsets + (long) row * OFFSET_BYTES);
  }

  private static boolean bit(long bits, int row) {
    return (Platform.getByte(null, bits + (row >> 3)) >> (row & 7) & 1) != 0;
  }

  @Override
  public boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public int numNulls() {
    return nulls;
  }

  @Override
  public boolean isNullAt(int row) {
    return nulls > 0 && !bit(validity, row);
  }

  @Override
  public boolean getBoolean(int row) {
    return bit(data, row);
  }

  @Override
  public byte getByte(int row) {
    return Platform.getByte(null, data + row);
  }

  @Override
  public short getShort(int row) {
    return Platform.getShort(null, data + (long) row * Short.BYTES);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, data + (long) row * Integer.BYTES);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, data + (long) row * Long.BYTES);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, data + (long) row * Float.BYTES);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, data + (long) row * Double.BYTES);
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    if (isNullAt(row)) {
      return null;
    }
    long address = data + (long) row * DECIMAL_BYTES;
    long low = Platform.getLong(null, address);
    if (precision <= Decimal.MAX_LONG_DIGITS()) {
      return Decimal.createUnsafe(low, precision, scale);
    }
    BigInteger high = BigInteger.valueOf(Platform.getLong(null, address + Long.BYTES)).shiftLeft(Long.SIZE);
    BigInteger digits = high.add(new BigInteger(Long.toUnsignedString(low)));
    return Decimal.apply(new BigDecimal(digits, scale), precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = offset(row);
    return UTF8String.fromAddress(null, data + start, offset(row + 1) - start);
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = offset(row);
    byte[] bytes = new byte[offset(row + 1) - start];
    Platform.copyMemory(null, data + start, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  @Override
  public void close() {
    vector.close();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw nested();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw nested();
  }

  @Override
  public ColumnVector getChild(int place) {
    throw nested();
  }

  private static UnsupportedOperationException nested() {
    return new UnsupportedOperationException("the column has no nested cells");
  }
}
