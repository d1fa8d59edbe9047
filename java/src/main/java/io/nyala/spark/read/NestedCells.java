package io.nyala.spark.read;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.TimeStampVector;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.complex.LargeListVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;

/** The cells of an Arrow vector of lists, structs or maps, whose parts are read where they lie, too. For one thread. */
final class NestedCells extends ArrowCells {
  private final List<ArrowCells> parts = new ArrayList<>();
  private final int listBytes; // of an offset, 0 without offsets
  private final int listSize; // of lists of one length
  private long ends;

  NestedCells(DataType type, FieldVector vector) {
    super(type, vector);
    List<FieldVector> children = vector.getChildrenFromFields();
    if (vector instanceof MapVector map) { // also a ListVector, of pairs
      children = map.getDataVector().getChildrenFromFields();
    }
    for (int place = 0; place < children.size(); place++) {
      parts.add(ArrowCells.of(partOf(type, place), children.get(place)));
    }
    listBytes = vector instanceof ListVector ? Integer.BYTES : vector instanceof LargeListVector ? Long.BYTES : 0;
    listSize = vector instanceof FixedSizeListVector fixed ? fixed.getListSize() : 0;
  }

  private static DataType partOf(DataType type, int place) {
    if (type instanceof ArrayType list) {
      return list.elementType();
    }
    if (type instanceof MapType map) {
      return place == 0 ? map.keyType() : map.valueType();
    }
    return ((StructType) type).fields()[place].dataType();
  }

  @Override
  void take(int rows) {
    takeValidity();
    int items = listSize > 0 ? Math.multiplyExact(rows, listSize) : rows;
    if (listBytes > 0) {
      ArrowBuf offsets = vector.getOffsetBuffer();
      ends = offsets.memoryAddress();
      check(rows == 0 || offsets.capacity() >= (rows + 1L) * listBytes && isRising(rows));
      items = rows == 0 ? 0 : end(rows);
    }
    for (ArrowCells part : parts) {
      check(part.vector.getValueCount() >= items);
      part.take(items);
    }
  }

  @Override
  Stream<TimeStampVector> clocks() {
    return parts.stream().flatMap(ArrowCells::clocks);
  }

  private boolean isRising(int rows) {
    long last = number(0);
    boolean isRising = last >= 0;
    for (int row = 1; row <= rows; row++) {
      long next = number(row);
      isRising &= next >= last;
      last = next;
    }
    return isRising && last <= Integer.MAX_VALUE;
  }

  private long number(int row) {
    long place = ends + (long) row * listBytes;
    return listBytes == Integer.BYTES ? Platform.getInt(null, place) : Platform.getLong(null, place);
  }

  private int end(int row) {
    return (int) number(row);
  }

  private int start(int row) {
    return listSize > 0 ? row * listSize : end(row);
  }

  private int length(int row) {
    return listSize > 0 ? listSize : end(row + 1) - end(row);
  }

  @Override
  public ColumnarArray getArray(int row) {
    return isNullAt(row) ? null : new ColumnarArray(parts.get(0), start(row), length(row));
  }

  @Override
  public ColumnarMap getMap(int row) {
    return isNullAt(row) ? null : new ColumnarMap(parts.get(0), parts.get(1), start(row), length(row));
  }

  @Override
  public ColumnVector getChild(int place) {
    return parts.get(place);
  }
}
