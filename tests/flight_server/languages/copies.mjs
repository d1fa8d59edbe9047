// Rows with nested columns in Node: made here, and copied from table to table. `test_copies.py` puts this behind the
// functions of examples/other_languages/client.mjs.
//
// Each line of input is a task: `build TO` writes rows and prints what it reads back, `copy FROM TO` copies all rows.

import readline from "node:readline";

const field = (name, type, nullable = true) => new arrow.Field(name, type, nullable);
const place = new arrow.Struct([field("lat", new arrow.Float64()), field("lon", new arrow.Float64())]);
const line = new arrow.Struct([field("item", new arrow.Uint16()), field("price", new arrow.Decimal(2, 9, 128))]);
const entry = new arrow.Struct([field("key", new arrow.Utf8(), false), field("value", new arrow.Int32())]);
const kinds = {
  tags: new arrow.List(field("item", new arrow.Utf8())),
  address: new arrow.Struct([field("city", new arrow.Utf8()), field("geo", place)]),
  labels: new arrow.Map_(field("entries", entry, false)),
  vector: new arrow.FixedSizeList(2, field("item", new arrow.Float32())),
  lines: new arrow.List(field("item", line)),
};
const cells = {
  tags: [["new", null, "eu"], [], null],
  address: [{ city: "Oslo", geo: { lat: 59.9, lon: 10.7 } }, { city: null, geo: null }, null],
  labels: [new Map([["a", 1], ["b", null]]), new Map(), null],
  vector: [[1.5, null], null, [0, -1]],
  lines: [[{ item: 65535, price: null }, null], [], null],
};

function nested() {
  const columns = { k: arrow.vectorFromArray([1n, 2n, 3n], new arrow.Int64()) };
  for (const [name, kind] of Object.entries(kinds)) columns[name] = arrow.vectorFromArray(cells[name], kind);
  return new arrow.Table(columns);
}

const upserted = (client, to, table) => write(client, { table: to, op: "upsert" }, table);
const all = (client, from) => read(client, { table: from, ordered: true });

async function build(client, to) {
  await upserted(client, to, nested());
  const back = await all(client, to);
  return JSON.stringify(back.toArray(), (_, value) => (typeof value === "bigint" ? Number(value) : value));
}

const copies = new FlightClient(process.argv[2].replace("grpc://", ""), grpc.credentials.createInsecure());
for await (const asked of readline.createInterface({ input: process.stdin })) {
  const [task, ...names] = asked.split(" ");
  if (task === "build") console.log(await build(copies, names[0]));
  else await upserted(copies, names[1], await all(copies, names[0]));
  console.log("ready");
}
copies.close();
