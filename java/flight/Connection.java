package io.nyala.flight;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.spark.sql.util.ArrowUtils;
import org.sparkproject.connect.grpc.CallOptions;
import org.sparkproject.connect.grpc.ClientCall;
import org.sparkproject.connect.grpc.Channel;
import org.sparkproject.connect.grpc.ClientInterceptors;
import org.sparkproject.connect.grpc.ManagedChannel;
import org.sparkproject.connect.grpc.MethodDescriptor;
import org.sparkproject.connect.grpc.MethodDescriptor.MethodType;
import org.sparkproject.connect.grpc.StatusRuntimeException;
import org.sparkproject.connect.grpc.netty.NettyChannelBuilder;
import org.sparkproject.connect.grpc.stub.ClientCalls;
import org.sparkproject.connect.grpc.stub.MetadataUtils;

/** This process' connection to one location, and the calls of Arrow Flight that reading needs. Thread safe. */
final class Connection {
  /** The memory of all that arrives: part of Spark's, and counted there. */
  static final BufferAllocator ALLOCATOR =
      ArrowUtils.rootAllocator().newChildAllocator("nyala", 0, Long.MAX_VALUE);

  private static final Map<Shown, Connection> ALL = new ConcurrentHashMap<>();
  private static final int WINDOW_BYTES = 8 << 20; // some messages of 2 MB, so that the server need not wait
  private static final int COMMAND = 2;

  private static final MethodDescriptor<byte[], byte[]> DO_ACTION =
      method("DoAction", MethodType.SERVER_STREAMING, new Bytes());
  private static final MethodDescriptor<byte[], byte[]> GET_FLIGHT_INFO =
      method("GetFlightInfo", MethodType.UNARY, new Bytes());
  private static final MethodDescriptor<byte[], FlightMessage> DO_GET =
      method("DoGet", MethodType.SERVER_STREAMING, new Messages());

  private final String location;
  private final Credentials credentials;
  private final ManagedChannel channel;

  private Connection(Shown shown) {
    Location at = Location.of(shown.location);
    location = shown.location;
    credentials = shown.credentials.here();
    credentials.checkHidden(at);
    channel = channel(at, credentials);
  }

  static Connection to(String location, Credentials credentials) {
    return ALL.computeIfAbsent(new Shown(location, credentials), Connection::new);
  }

  String location() {
    return location;
  }

  /** Returns the results of an action. */
  List<byte[]> action(String name, byte[] body, double seconds) {
    byte[] request = new Protobuf.Writer().text(1, name).bytes(2, body).done();
    return called(() -> {
      List<byte[]> results = new ArrayList<>();
      Iterator<byte[]> answers =
          ClientCalls.blockingServerStreamingCall(withHeaders(), DO_ACTION, within(seconds), request);
      while (answers.hasNext()) {
        results.add(field(answers.next(), 1));
      }
      return results;
    });
  }

  /** Returns the FlightInfo of a command, as it came. */
  byte[] flightInfo(byte[] command) {
    byte[] request = new Protobuf.Writer().number(1, COMMAND).bytes(2, command).done();
    return called(() -> ClientCalls.blockingUnaryCall(withHeaders(), GET_FLIGHT_INFO, CallOptions.DEFAULT, request));
  }

  /** Starts to read a ticket. */
  FlightStream read(byte[] ticket) {
    channel.resetConnectBackoff(); // try now, however long it was down
    ClientCall<byte[], FlightMessage> call = channel.newCall(DO_GET, CallOptions.DEFAULT);
    return new FlightStream(call, credentials.headers(), new Protobuf.Writer().bytes(1, ticket).done(), location);
  }

  private Channel withHeaders() {
    channel.resetConnectBackoff();
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(credentials.headers()));
  }

  private static CallOptions within(double seconds) {
    return seconds == 0
        ? CallOptions.DEFAULT
        : CallOptions.DEFAULT.withDeadlineAfter((long) (seconds * 1000), TimeUnit.MILLISECONDS);
  }

  private <T> T called(Call<T> call) {
    try {
      return call.answer();
    } catch (StatusRuntimeException error) {
      throw StoreException.of(error.getStatus(), error.getTrailers(), location);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Returns the byte string in one field of a message. */
  private static byte[] field(byte[] message, int number) throws IOException {
    Protobuf.Reader fields = new Protobuf.Reader(message);
    byte[] found = {};
    for (int field = fields.next(); field != 0; field = fields.next()) {
      if (field == number) {
        found = fields.bytes();
      } else {
        fields.skip();
      }
    }
    return found;
  }

  private static ManagedChannel channel(Location at, Credentials credentials) {
    NettyChannelBuilder builder;
    if (at.isUnix()) {
      builder = NettyChannelBuilder.forAddress(new DomainSocketAddress(at.rest()))
          .eventLoopGroup(UnixSockets.THREADS)
          .channelType(EpollDomainSocketChannel.class)
          .overrideAuthority("localhost")
          .usePlaintext();
    } else if (at.isTls()) {
      builder = NettyChannelBuilder.forAddress(at.host(), at.port(), credentials.tls());
    } else {
      builder = NettyChannelBuilder.forAddress(at.host(), at.port()).usePlaintext();
    }
    return builder.maxInboundMessageSize(Integer.MAX_VALUE).flowControlWindow(WINDOW_BYTES).build();
  }

  private static <T> MethodDescriptor<byte[], T> method(
      String name, MethodType type, MethodDescriptor.Marshaller<T> answers) {
    return MethodDescriptor.<byte[], T>newBuilder()
        .setType(type)
        .setFullMethodName("arrow.flight.protocol.FlightService/" + name)
        .setRequestMarshaller(new Bytes())
        .setResponseMarshaller(answers)
        .build();
  }

  private record Shown(String location, Credentials credentials) {}

  private interface Call<T> {
    T answer() throws IOException;
  }

  /** Loaded where a socket of this machine is used: it needs a library of Netty's for Linux. */
  private static final class UnixSockets {
    static final EventLoopGroup THREADS = new MultiThreadIoEventLoopGroup(
        1, new DefaultThreadFactory("nyala-flight", true), EpollIoHandler.newFactory());
  }

  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] message) {
      return new ByteArrayInputStream(message);
    }

    @Override
    public byte[] parse(InputStream message) {
      try {
        return message.readAllBytes();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  private static final class Messages implements MethodDescriptor.Marshaller<FlightMessage> {
    @Override
    public InputStream stream(FlightMessage message) {
      throw new UnsupportedOperationException("rows are only read");
    }

    @Override
    public FlightMessage parse(InputStream message) {
      try {
        return FlightMessage.read(message, ALLOCATOR);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }
}
