// A Nyala client in Node: make a table, upsert rows, read them back, and see an error.
//
//   npm install @grpc/grpc-js protobufjs apache-arrow && node client.mjs 127.0.0.1:8815
//
// Arrow Flight is four messages of protobuf around Arrow's own. docs/flight.md goes through it step by step.

import * as arrow from "apache-arrow";
import grpc from "@grpc/grpc-js";
import protobuf from "protobufjs";

// 1. The part of Flight.proto that is used here (github.com/apache/arrow, format/Flight.proto).
const { root } = protobuf.parse(`
  syntax = "proto3";
  message Ticket { bytes ticket = 1; }
  message Action { string type = 1; bytes body = 2; }
  message Result { bytes body = 1; }
  message PutResult { bytes app_metadata = 1; }
  message FlightDescriptor { int32 type = 1; bytes cmd = 2; repeated string path = 3; }
  message FlightData {
    FlightDescriptor flight_descriptor = 1; bytes data_header = 2; bytes app_metadata = 3; bytes data_body = 1000;
  }`, { keepCase: true });
const COMMAND = 2;  // FlightDescriptor.type: the descriptor is a command, not a path

function method(name, request, response, requestStream) {
  const of = (type) => ({
    write: (value) => Buffer.from(root.lookupType(type).encode(value).finish()),
    read: (bytes) => root.lookupType(type).decode(bytes),
  });
  const [asked, answered] = [of(request), of(response)];
  return {
    path: `/arrow.flight.protocol.FlightService/${name}`, requestStream, responseStream: true,
    requestSerialize: asked.write, requestDeserialize: asked.read,
    responseSerialize: answered.write, responseDeserialize: answered.read,
  };
}

const FlightClient = grpc.makeGenericClientConstructor({
  DoAction: method("DoAction", "Action", "Result", false),
  DoGet: method("DoGet", "Ticket", "FlightData", false),
  DoPut: method("DoPut", "FlightData", "PutResult", true),
}, "FlightService");

const json = (value) => Buffer.from(JSON.stringify(value));
// Timestamps of commits have 63 bits, more than a number of JavaScript holds: keep them as text.
const parsed = (bytes) => JSON.parse(Buffer.from(bytes).toString().replace(/:(\d{16,})/g, ':"$1"'));

// 2. Everything that is not rows is an action: a name and a body of JSON, answered by JSON.
async function act(client, type, body) {
  for await (const result of client.DoAction({ type, body: body ? json(body) : Buffer.alloc(0) })) {
    return parsed(result.body);
  }
}

// 3. A FlightData is one message of an Arrow stream without its frame: 0xFFFFFFFF, the length of the header, the header
//    padded to 8 bytes, the body. To read, put the frame back; to write, take it off.
function framed({ data_header, data_body }) {
  const padded = (data_header.length + 7) & ~7;
  const frame = Buffer.alloc(8 + padded);
  frame.writeUInt32LE(0xffffffff, 0);
  frame.writeInt32LE(padded, 4);
  frame.set(data_header, 8);
  return Buffer.concat([frame, Buffer.from(data_body)]);
}

function* messages(table) {
  const bytes = Buffer.from(arrow.tableToIPC(table, "stream"));
  for (let at = 0; at + 8 <= bytes.length;) {
    const length = bytes.readInt32LE(at + 4);
    if (length === 0) return;  // the end of the stream
    const data_header = bytes.subarray(at + 8, at + 8 + length);
    const bodyLength = Number(arrow.Message.decode(data_header).bodyLength);
    const data_body = bytes.subarray(at + 8 + length, at + 8 + length + bodyLength);
    yield { data_header, data_body };
    at += 8 + length + bodyLength;
  }
}

// 4. A ticket is the JSON of a scan; a client writes it itself.
async function read(client, scan) {
  const parts = [];
  for await (const data of client.DoGet({ ticket: json(scan) })) {
    if (data.data_header.length) parts.push(framed(data));
  }
  return arrow.tableFromIPC(Buffer.concat(parts));
}

// 5. The first message, the schema, carries the descriptor; every batch is one commit, answered if it has a "seq".
async function write(client, command, table) {
  const put = client.DoPut();
  let [first, seq] = [true, 0];
  for (const message of messages(table)) {
    if (first) put.write({ ...message, flight_descriptor: { type: COMMAND, cmd: json(command) } });
    else put.write({ ...message, app_metadata: json({ seq: seq++ }) });
    first = false;
  }
  put.end();
  const answers = [];
  for await (const answer of put) answers.push(parsed(answer.app_metadata));
  return answers;
}

const client = new FlightClient(process.argv[2] ?? "127.0.0.1:8815", grpc.credentials.createInsecure());
console.log("health:", (await act(client, "health")).status);
await act(client, "create_table", {
  name: "homes_node", primary_key: ["id"], if_not_exists: true,
  columns: [
    { name: "id", type: "int64", nullable: false }, { name: "city", type: "string" }, { name: "price", type: "double" },
  ],
});
const homes = new arrow.Table({
  id: arrow.vectorFromArray([1n, 2n, 3n], new arrow.Int64()),
  city: arrow.vectorFromArray(["Oslo", "Bergen", "Oslo"], new arrow.Utf8()),  // without the type: a dictionary
  price: arrow.vectorFromArray([5.1, 3.9, 4.4], new arrow.Float64()),
});
for (const answer of await write(client, { table: "homes_node", op: "upsert" }, homes)) {
  console.log("written:", answer.applied, "rows at", answer.timestamp);
}
const found = await read(client, { table: "homes_node", where: "price > 4", ordered: true });
console.log(found.numRows, "rows:", found.toArray().map((row) => `${row.id} ${row.city} ${row.price}`).join(", "));

// 6. The text of an error starts with a code word, whatever the status of gRPC; go by the word.
try {
  await read(client, { table: "no_such_table" });
} catch (error) {
  console.log("error:", error.details);
}
client.close();
