package io.nyala.flight;

import com.fasterxml.jackson.databind.JsonNode;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.spark.sql.util.ArrowUtils;
import org.sparkproject.connect.grpc.CallOptions;
import org.sparkproject.connect.grpc.ClientCall;
import org.sparkproject.connect.grpc.ClientInterceptors;
import org.sparkproject.connect.grpc.ManagedChannel;
import org.sparkproject.connect.grpc.MethodDescriptor;
import org.sparkproject.connect.grpc.MethodDescriptor.MethodType;
import org.sparkproject.connect.grpc.netty.NettyChannelBuilder;
import org.sparkproject.connect.grpc.stub.MetadataUtils;

/** This process' connection to one location, and the calls of Arrow Flight that Spark needs. Thread safe. */
final class Connection {
  /** The memory of all that arrives: part of Spark's, and counted there. */
  static final BufferAllocator ALLOCATOR =
      ArrowUtils.rootAllocator().newChildAllocator("nyala", 0, Long.MAX_VALUE);

  /** A process that takes longer to say which store it has may be down. */
  static final double HEALTH_SECONDS = 10;

  private static final Map<Shown, Connection> ALL = new ConcurrentHashMap<>();
  private static final int WINDOW_BYTES = 8 << 20; // some messages of 2 MB, so that the server need not wait
  private static final int COMMAND = 2;
  /** With it gRPC sets TCP_USER_TIMEOUT on Linux: what is sent, such as a heartbeat, must be acknowledged by then. */
  private static final int LOST_AFTER_SECONDS = 5;
  private static final int KEEPALIVE_MINUTES = 10; // servers of gRPC reject more than one ping in five minutes

  private static final MethodDescriptor<byte[], byte[]> DO_ACTION =
      method("DoAction", MethodType.SERVER_STREAMING, new Bytes());
  private static final MethodDescriptor<byte[], byte[]> GET_FLIGHT_INFO =
      method("GetFlightInfo", MethodType.UNARY, new Bytes());
  private static final MethodDescriptor<byte[], FlightMessage> DO_GET =
      method("DoGet", MethodType.SERVER_STREAMING, new Messages());

  private static final MethodDescriptor<byte[], byte[]> DO_PUT =
      method("DoPut", MethodType.BIDI_STREAMING, new Bytes());

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

  /** Sends an action; {@code seconds} is the time that it may take, 0 without a limit. */
  Answers<byte[]> action(String name, byte[] body, double seconds, Consumer<Link> check) {
    return new Answers<>(this, call(DO_ACTION, seconds), credentials.headers(), check).to(actionRequest(name, body));
  }

  /** Asks for the FlightInfo of a command, as it comes. */
  Answers<byte[]> flightInfo(byte[] command, Consumer<Link> check) {
    return new Answers<>(this, call(GET_FLIGHT_INFO, 0), credentials.headers(), check).to(descriptor(command));
  }

  /** Starts to read a ticket. */
  Answers<FlightMessage> read(byte[] ticket, Consumer<Link> check) {
    byte[] request = new Protobuf.Writer().bytes(1, ticket).done();
    return new Answers<>(this, call(DO_GET, 0), credentials.headers(), check).to(request);
  }

  /** Starts to write: messages of FlightData are to be sent. */
  Answers<byte[]> put(Consumer<Link> check) {
    return new Answers<>(this, call(DO_PUT, 0), credentials.headers(), check);
  }

  /** Returns a FlightDescriptor with a command. */
  static byte[] descriptor(byte[] command) {
    return new Protobuf.Writer().number(1, COMMAND).bytes(2, command).done();
  }

  /** Returns the JSON that answers an action. */
  JsonNode ask(String name, Object body, double seconds, Consumer<Link> check) {
    try (Answers<byte[]> answers = action(name, request(body), seconds, check)) {
      return json(name, answers);
    }
  }

  /** Returns the several JSON values that answer an action. */
  List<JsonNode> pages(String name, Object body, Consumer<Link> check) {
    try (Answers<byte[]> answers = action(name, request(body), 0, check)) {
      return Json.readAll(text(answers));
    } catch (IOException error) {
      throw notJson(name, error);
    }
  }

  private static byte[] request(Object body) {
    return body == null ? new byte[0] : Json.of(body).getBytes(StandardCharsets.UTF_8);
  }

  /** Returns which store is at the other end of a link: asked once for each link, and by it. */
  StoreIdentity storeAt(Link link) {
    if (link.store != null) {
      return link.store;
    }
    try (Answers<byte[]> answers = action("health", new byte[0], HEALTH_SECONDS, any -> {})) {
      JsonNode health = json("health", answers);
      if (answers.link() != link) {
        throw StoreException.lost("the connection to " + location + " broke");
      }
      StoreIdentity found = StoreIdentity.of(health);
      if (!found.uuid().isEmpty() || !health.path("state").asText("").equals("standby")) {
        link.store = found; // a process that stands by may not know it yet
      }
      return found;
    }
  }

  /** Lets calls from now on take a new link. */
  void giveUp() {
    channel.enterIdle();
  }

  /** Returns a call of an action that was not sent, with what it shows the server. */
  ClientCall<byte[], byte[]> actionCall(double seconds) {
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(credentials.headers()))
        .newCall(DO_ACTION, within(seconds));
  }

  static byte[] actionRequest(String name, byte[] body) {
    return new Protobuf.Writer().text(1, name).bytes(2, body).done();
  }

  private <T> ClientCall<byte[], T> call(MethodDescriptor<byte[], T> method, double seconds) {
    channel.resetConnectBackoff(); // try now, however long it was down
    return channel.newCall(method, within(seconds));
  }

  private static CallOptions within(double seconds) {
    return seconds == 0
        ? CallOptions.DEFAULT
        : CallOptions.DEFAULT.withDeadlineAfter((long) (seconds * 1000), TimeUnit.MILLISECONDS);
  }

  static JsonNode json(String name, Answers<byte[]> answers) {
    try {
      return Json.read(text(answers));
    } catch (IOException error) {
      throw notJson(name, error);
    }
  }

  private static String text(Answers<byte[]> answers) throws IOException {
    ByteArrayOutputStream text = new ByteArrayOutputStream();
    for (byte[] each = answers.next(); each != null; each = answers.next()) {
      text.writeBytes(field(each, 1));
    }
    return text.toString(StandardCharsets.UTF_8);
  }

  private static StoreException notJson(String name, IOException error) {
    return new StoreException("INTERNAL", "the answer to " + name + " is not JSON: " + error.getMessage());
  }

  /** Returns the byte string in one field of a message. */
  static byte[] field(byte[] message, int number) throws IOException {
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
    return builder.maxInboundMessageSize(Integer.MAX_VALUE)
        .flowControlWindow(WINDOW_BYTES)
        .disableRetry() // ServerWait decides
        .keepAliveTime(KEEPALIVE_MINUTES, TimeUnit.MINUTES)
        .keepAliveTimeout(LOST_AFTER_SECONDS, TimeUnit.SECONDS)
        .addTransportFilter(Link.FILTER)
        .build();
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
