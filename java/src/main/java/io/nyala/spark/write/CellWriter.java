package io.nyala.spark.write;

import java.math.BigInteger;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.DecimalVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.arrow.ArrowFieldWriter;
import org.apache.spark.sql.execution.arrow.ArrowWriter$;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes one column of rows into the memory of an Arrow vector, as {@link ArrowCells} reads it: without an object of
 * Arrow's for a cell, or a check of what was allocated for a whole batch. For one thread.
 */
final class CellWriter {
  private static final int OFFSET_BYTES = BaseVariableWidthVector.OFFSET_WIDTH;
  private static final int DECIMAL_BYTES = 16;
  private static final long FIRST_TEXT_BYTES = 1 << 16;
  private static final byte ALL = (byte) 0xff;
  private static final int ROWS_A_LOOK = 64; // at the bytes of nested cells

  private enum Kind { BIT, BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, DECIMAL, TEXT, BINARY, OTHER }

  private final FieldVector vector;
  private final int width;
  private final int place;
  private final int rowsMax;
  private final Kind kind;
  private final int precision;
  private final int scale;
  private final long validity;
  private final long offsets;
  private final ArrowFieldWriter other; // of nested cells
  private long data;
  private long room;
  private int end;

  /** Allocates the memory for {@code rowsMax} rows, whose cells stand at {@code place}. */
  CellWriter(FieldVector vector, int place, int rowsMax) {
    this.vector = vector;
    this.place = place;
    this.rowsMax = rowsMax;
    width = width(vector);
    kind = kindOf(vector);
    precision = vector instanceof DecimalVector decimals ? decimals.getPrecision() : 0;
    scale = vector instanceof DecimalVector decimals ? decimals.getScale() : 0;
    if (kind == Kind.OTHER) {
      vector.allocateNew();
      other = ArrowWriter$.MODULE$.createFieldWriter(vector);
      offsets = 0;
      validity = 0;
      return;
    }
    other = null;
    if (vector instanceof BaseVariableWidthVector texts) {
      texts.allocateNew(FIRST_TEXT_BYTES, rowsMax);
      offsets = texts.getOffsetBuffer().memoryAddress();
      Platform.putInt(null, offsets, 0);
    } else {
      ((BaseFixedWidthVector) vector).allocateNew(rowsMax);
      offsets = 0;
    }
    validity = vector.getValidityBuffer().memoryAddress();
    locate();
    reset();
  }

  /** Returns the bytes that each row takes in a vector, apart from those of texts and bits. */
  static int width(FieldVector vector) {
    return vector instanceof BaseFixedWidthVector fixed ? fixed.getTypeWidth() : OFFSET_BYTES;
  }

  private static Kind kindOf(FieldVector vector) {
    return switch (vector.getMinorType()) {
      case BIT -> Kind.BIT;
      case TINYINT -> Kind.BYTE;
      case SMALLINT -> Kind.SHORT;
      case INT, DATEDAY -> Kind.INT;
      case BIGINT, TIMESTAMPMICROTZ -> Kind.LONG;
      case FLOAT4 -> Kind.FLOAT;
      case FLOAT8 -> Kind.DOUBLE;
      case DECIMAL -> Kind.DECIMAL;
      case VARCHAR -> Kind.TEXT;
      case VARBINARY -> Kind.BINARY;
      default -> Kind.OTHER;
    };
  }

  /** Begins a new batch in the same memory. */
  void reset() {
    if (other != null) {
      other.reset();
      end = 0;
      return;
    }
    Platform.setMemory(validity, ALL, (rowsMax + 7) >> 3);
    end = 0;
  }

  /** Returns the bytes of texts so far. */
  int textBytes() {
    return end;
  }

  /** Writes the cell of a row as that of the {@code at}-th row of the batch. Rows come in order. */
  void write(InternalRow row, int at) {
    if (other != null) {
      other.write(row, place);
      if (at % ROWS_A_LOOK == ROWS_A_LOOK - 1) {
        end = other.getSizeInBytes();
      }
      return;
    }
    if (row.isNullAt(place)) {
      writeNull(at);
      return;
    }
    switch (kind) {
      case BIT -> setBit(data, at, row.getBoolean(place));
      case BYTE -> Platform.putByte(null, data + at, row.getByte(place));
      case SHORT -> Platform.putShort(null, data + (long) at * Short.BYTES, row.getShort(place));
      case INT -> Platform.putInt(null, data + (long) at * Integer.BYTES, row.getInt(place));
      case LONG -> Platform.putLong(null, data + (long) at * Long.BYTES, row.getLong(place));
      case FLOAT -> Platform.putFloat(null, data + (long) at * Float.BYTES, row.getFloat(place));
      case DOUBLE -> Platform.putDouble(null, data + (long) at * Double.BYTES, row.getDouble(place));
      case DECIMAL -> writeDecimal(row.getDecimal(place, precision, scale), at);
      case TEXT -> {
        UTF8String text = row.getUTF8String(place);
        text.writeToMemory(null, next(text.numBytes(), at));
      }
      case BINARY -> {
        byte[] blob = row.getBinary(place);
        Platform.copyMemory(blob, Platform.BYTE_ARRAY_OFFSET, null, next(blob.length, at), blob.length);
      }
      case OTHER -> throw new AssertionError("written above");
    }
  }

  /** Ends a batch of so many rows: the vector has them. */
  void finish(int rows) {
    if (other != null) {
      other.finish();
      return;
    }
    if (vector instanceof BaseVariableWidthVector texts) {
      texts.setLastSet(rows - 1);
    }
    vector.setValueCount(rows);
  }

  private void writeNull(int at) {
    setBit(validity, at, false);
    switch (kind) {
      case TEXT, BINARY -> next(0, at);
      case BIT -> setBit(data, at, false);
      default -> Platform.setMemory(data + (long) at * width, (byte) 0, width);
    }
  }

  private void writeDecimal(Decimal number, int at) {
    if (!number.changePrecision(precision, scale)) { // what Spark, too, writes as NULL
      writeNull(at);
      return;
    }
    long low;
    long high;
    if (precision <= Decimal.MAX_LONG_DIGITS()) {
      low = number.toUnscaledLong();
      high = low >> (Long.SIZE - 1);
    } else {
      BigInteger digits = number.toJavaBigDecimal().unscaledValue();
      low = digits.longValue();
      high = digits.shiftRight(Long.SIZE).longValue();
    }
    long address = data + (long) at * DECIMAL_BYTES;
    Platform.putLong(null, address, low);
    Platform.putLong(null, address + Long.BYTES, high);
  }

  /** Returns where the next bytes go, for which there is room. */
  private long next(int length, int at) {
    int start = end;
    end = Math.addExact(start, length);
    if (end > room) {
      ((BaseVariableWidthVector) vector).reallocDataBuffer(Math.max(2 * room, end));
      locate();
    }
    Platform.putInt(null, offsets + (at + 1L) * OFFSET_BYTES, end);
    return data + start;
  }

  private void locate() {
    data = vector.getDataBuffer().memoryAddress();
    room = vector.getDataBuffer().capacity();
  }

  private static void setBit(long bits, int at, boolean isSet) {
    long address = bits + (at >> 3);
    int mask = 1 << (at & 7);
    int others = Platform.getByte(null, address) & ~mask;
    Platform.putByte(null, address, (byte) (isSet ? others | mask : others));
  }
}
