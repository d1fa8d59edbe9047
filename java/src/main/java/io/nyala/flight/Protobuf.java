package io.nyala.flight;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Protobuf as far as Flight needs it: numbers, byte strings and nested messages, field by field. */
final class Protobuf {
  private static final int VARINT = 0;
  private static final int FIXED64 = 1;
  private static final int BYTES = 2;
  private static final int FIXED32 = 5;

  private Protobuf() {}

  /** Reads the fields of one message; each that is not wanted must be skipped. */
  static final class Reader {
    private final InputStream in;
    private int wireType;

    Reader(InputStream in) {
      this.in = in;
    }

    Reader(byte[] message) {
      this(new ByteArrayInputStream(message));
    }

    /** Returns the number of the next field; 0 at the end. */
    int next() throws IOException {
      int first = in.read();
      if (first < 0) {
        return 0;
      }
      long tag = varint(first);
      wireType = (int) tag & 7;
      return (int) (tag >>> 3);
    }

    /** Returns the length of the byte string that follows in the stream. */
    int length() throws IOException {
      if (wireType != BYTES) {
        throw new IOException("a field is not a byte string");
      }
      return Math.toIntExact(number());
    }

    byte[] bytes() throws IOException {
      int length = length();
      byte[] found = in.readNBytes(length);
      if (found.length < length) {
        throw new EOFException();
      }
      return found;
    }

    String text() throws IOException {
      return new String(bytes(), StandardCharsets.UTF_8);
    }

    void skip() throws IOException {
      switch (wireType) {
        case VARINT -> number();
        case FIXED64 -> in.skipNBytes(8);
        case BYTES -> in.skipNBytes(length());
        case FIXED32 -> in.skipNBytes(4);
        default -> throw new IOException("a field has the unknown type " + wireType);
      }
    }

    /** Returns the number of the field that comes. */
    long number() throws IOException {
      return varint(in.read());
    }

    private long varint(int first) throws IOException {
      long value = 0;
      int next = first;
      for (int shift = 0; shift < 64; shift += 7, next = in.read()) {
        if (next < 0) {
          throw new EOFException();
        }
        value |= (long) (next & 0x7f) << shift;
        if (next < 0x80) {
          return value;
        }
      }
      throw new IOException("a number has more than 64 bits");
    }
  }

  /** Writes the fields of one message. */
  static final class Writer {
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();

    Writer number(int field, int value) {
      varint(field << 3 | VARINT);
      varint(value);
      return this;
    }

    Writer bytes(int field, byte[] value) {
      begin(field, value.length);
      out.writeBytes(value);
      return this;
    }

    Writer text(int field, String value) {
      return bytes(field, value.getBytes(StandardCharsets.UTF_8));
    }

    byte[] done() {
      return out.toByteArray();
    }

    /** Returns the message with one more byte string, its last {@code length} bytes, which the caller fills in. */
    byte[] doneBefore(int field, int length) {
      begin(field, length);
      byte[] written = out.toByteArray();
      return Arrays.copyOf(written, Math.addExact(written.length, length));
    }

    private void begin(int field, int length) {
      varint(field << 3 | BYTES);
      varint(length);
    }

    private void varint(int value) {
      int rest = value;
      for (; rest >= 0x80; rest >>>= 7) {
        out.write(rest & 0x7f | 0x80);
      }
      out.write(rest);
    }
  }
}
