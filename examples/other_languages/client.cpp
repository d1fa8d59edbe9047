// A Nyala client in C++: make a table, upsert rows, read them back, and see an error. Needs Arrow C++ with Flight.
//
//   c++ -std=c++20 client.cpp $(pkg-config --cflags --libs arrow-flight) -o client && ./client grpc://127.0.0.1:8815
//
// docs/flight.md goes through it step by step.

#include <arrow/api.h>
#include <arrow/flight/api.h>

#include <iostream>
#include <memory>
#include <string>

namespace flight = arrow::flight;

// 1. Everything that is not rows is an action: a name and a body of JSON, answered by JSON.
arrow::Result<std::string> Act(flight::FlightClient& client, const std::string& name, const std::string& body) {
  ARROW_ASSIGN_OR_RAISE(auto results, client.DoAction(flight::Action{name, arrow::Buffer::FromString(body)}));
  ARROW_ASSIGN_OR_RAISE(auto result, results->Next());
  return result ? result->body->ToString() : std::string();
}

arrow::Result<std::shared_ptr<arrow::RecordBatch>> Rows() {
  arrow::Int64Builder ids;
  arrow::StringBuilder cities;
  arrow::DoubleBuilder prices;
  ARROW_RETURN_NOT_OK(ids.AppendValues({1, 2, 3}));
  ARROW_RETURN_NOT_OK(cities.AppendValues({"Oslo", "Bergen", "Oslo"}));
  ARROW_RETURN_NOT_OK(prices.AppendValues({5.1, 3.9, 4.4}));
  ARROW_ASSIGN_OR_RAISE(auto id, ids.Finish());
  ARROW_ASSIGN_OR_RAISE(auto city, cities.Finish());
  ARROW_ASSIGN_OR_RAISE(auto price, prices.Finish());
  // Columns are found by name and need the exact types of the table.
  auto schema = arrow::schema({arrow::field("id", arrow::int64(), false), arrow::field("city", arrow::utf8()),
                               arrow::field("price", arrow::float64())});
  return arrow::RecordBatch::Make(schema, 3, {id, city, price});
}

// 2. A batch is one commit. With a "seq" it is answered at once; read the answer, and close the stream: errors show there.
arrow::Status Write(flight::FlightClient& client, const std::string& command,
                    const std::shared_ptr<arrow::RecordBatch>& batch) {
  auto descriptor = flight::FlightDescriptor::Command(command);
  ARROW_ASSIGN_OR_RAISE(auto put, client.DoPut(descriptor, batch->schema()));
  ARROW_RETURN_NOT_OK(put.writer->WriteWithMetadata(*batch, arrow::Buffer::FromString(R"({"seq": 1})")));
  std::shared_ptr<arrow::Buffer> answer;
  ARROW_RETURN_NOT_OK(put.reader->ReadMetadata(&answer));
  if (answer) std::cout << "written: " << answer->ToString() << "\n";
  ARROW_RETURN_NOT_OK(put.writer->DoneWriting());
  return put.writer->Close();
}

// 3. A ticket is the JSON of a scan; a client writes it itself.
arrow::Status Read(flight::FlightClient& client, const std::string& scan) {
  ARROW_ASSIGN_OR_RAISE(auto stream, client.DoGet(flight::Ticket{scan}));
  ARROW_ASSIGN_OR_RAISE(auto table, stream->ToTable());
  std::cout << table->num_rows() << " rows\n" << table->ToString() << "\n";
  return arrow::Status::OK();
}

arrow::Status Run(const std::string& url) {
  ARROW_ASSIGN_OR_RAISE(auto location, flight::Location::Parse(url));
  ARROW_ASSIGN_OR_RAISE(auto client, flight::FlightClient::Connect(location));
  ARROW_ASSIGN_OR_RAISE(auto health, Act(*client, "health", ""));
  std::cout << "health: " << health << "\n";
  ARROW_RETURN_NOT_OK(Act(*client, "create_table", R"({
    "name": "homes_cpp", "primary_key": ["id"], "if_not_exists": true,
    "columns": [{"name": "id", "type": "int64", "nullable": false}, {"name": "city", "type": "string"},
                {"name": "price", "type": "double"}]})").status());
  ARROW_ASSIGN_OR_RAISE(auto rows, Rows());
  ARROW_RETURN_NOT_OK(Write(*client, R"({"table": "homes_cpp", "op": "upsert"})", rows));
  ARROW_RETURN_NOT_OK(Read(*client, R"({"table": "homes_cpp", "where": "price > 4", "ordered": true})"));

  // 4. The text of an error starts with a code word; that of a missing table is NOT_FOUND. Go by the word.
  arrow::Status missing = Read(*client, R"({"table": "no_such_table"})");
  std::cout << "error: " << missing.message().substr(0, missing.message().find('\n')) << "\n";
  return client->Close();
}

int main(int argc, char** argv) {
  arrow::Status status = Run(argc > 1 ? argv[1] : "grpc://127.0.0.1:8815");
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
