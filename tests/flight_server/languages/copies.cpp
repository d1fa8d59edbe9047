// Rows with nested columns in C++: made here, and copied from table to table. `test_copies.py` puts this behind the
// functions of examples/other_languages/client.cpp.
//
// Each line of input is a task: `build TO` writes rows and reads them back, `copy FROM TO` copies all rows.

#include <sstream>

using arrow::default_memory_pool;

arrow::Status Append(arrow::StringBuilder* cities, arrow::StructBuilder* places) {
  auto* latitude = static_cast<arrow::DoubleBuilder*>(places->field_builder(0));
  auto* longitude = static_cast<arrow::DoubleBuilder*>(places->field_builder(1));
  ARROW_RETURN_NOT_OK(cities->Append("Oslo"));
  ARROW_RETURN_NOT_OK(places->Append());
  ARROW_RETURN_NOT_OK(latitude->Append(59.9));
  return longitude->Append(10.7);
}

arrow::Result<std::shared_ptr<arrow::Array>> Addresses() {
  auto place = arrow::struct_({arrow::field("lat", arrow::float64()), arrow::field("lon", arrow::float64())});
  auto kind = arrow::struct_({arrow::field("city", arrow::utf8()), arrow::field("geo", place)});
  std::unique_ptr<arrow::ArrayBuilder> builder;
  ARROW_RETURN_NOT_OK(arrow::MakeBuilder(default_memory_pool(), kind, &builder));
  auto* addresses = static_cast<arrow::StructBuilder*>(builder.get());
  auto* cities = static_cast<arrow::StringBuilder*>(addresses->field_builder(0));
  auto* places = static_cast<arrow::StructBuilder*>(addresses->field_builder(1));
  ARROW_RETURN_NOT_OK(addresses->Append());
  ARROW_RETURN_NOT_OK(Append(cities, places));
  ARROW_RETURN_NOT_OK(addresses->Append());
  ARROW_RETURN_NOT_OK(cities->AppendNull());
  ARROW_RETURN_NOT_OK(places->AppendNull());
  ARROW_RETURN_NOT_OK(addresses->AppendNull());
  return addresses->Finish();
}

arrow::Result<std::shared_ptr<arrow::Array>> Tags() {
  auto words = std::make_shared<arrow::StringBuilder>();
  arrow::ListBuilder lists(default_memory_pool(), words);
  ARROW_RETURN_NOT_OK(lists.Append());
  ARROW_RETURN_NOT_OK(words->Append("new"));
  ARROW_RETURN_NOT_OK(words->AppendNull());
  ARROW_RETURN_NOT_OK(words->Append("eu"));
  ARROW_RETURN_NOT_OK(lists.Append());
  ARROW_RETURN_NOT_OK(lists.AppendNull());
  return lists.Finish();
}

arrow::Result<std::shared_ptr<arrow::Array>> Labels() {
  auto keys = std::make_shared<arrow::StringBuilder>();
  auto items = std::make_shared<arrow::Int32Builder>();
  arrow::MapBuilder maps(default_memory_pool(), keys, items);
  ARROW_RETURN_NOT_OK(maps.Append());
  ARROW_RETURN_NOT_OK(keys->Append("a"));
  ARROW_RETURN_NOT_OK(items->Append(1));
  ARROW_RETURN_NOT_OK(keys->Append("b"));
  ARROW_RETURN_NOT_OK(items->AppendNull());
  ARROW_RETURN_NOT_OK(maps.Append());
  ARROW_RETURN_NOT_OK(maps.AppendNull());
  return maps.Finish();
}

arrow::Result<std::shared_ptr<arrow::Array>> Vectors() {
  auto numbers = std::make_shared<arrow::FloatBuilder>();
  arrow::FixedSizeListBuilder lists(default_memory_pool(), numbers, 2);
  ARROW_RETURN_NOT_OK(lists.Append());
  ARROW_RETURN_NOT_OK(numbers->Append(1.5));
  ARROW_RETURN_NOT_OK(numbers->AppendNull());
  ARROW_RETURN_NOT_OK(lists.AppendNull());
  ARROW_RETURN_NOT_OK(lists.Append());
  ARROW_RETURN_NOT_OK(numbers->AppendValues({0.0, -1.0}));
  return lists.Finish();
}

arrow::Result<std::shared_ptr<arrow::Array>> Lines() {
  auto line = arrow::struct_({arrow::field("item", arrow::uint16()), arrow::field("price", arrow::decimal128(9, 2))});
  std::unique_ptr<arrow::ArrayBuilder> builder;
  ARROW_RETURN_NOT_OK(arrow::MakeBuilder(default_memory_pool(), arrow::large_list(line), &builder));
  auto* lists = static_cast<arrow::LargeListBuilder*>(builder.get());
  auto* lines = static_cast<arrow::StructBuilder*>(lists->value_builder());
  ARROW_RETURN_NOT_OK(lists->Append());
  ARROW_RETURN_NOT_OK(lines->Append());
  ARROW_RETURN_NOT_OK(static_cast<arrow::UInt16Builder*>(lines->field_builder(0))->Append(65535));
  ARROW_RETURN_NOT_OK(static_cast<arrow::Decimal128Builder*>(lines->field_builder(1))->Append(arrow::Decimal128(-150)));
  ARROW_RETURN_NOT_OK(lines->AppendNull());
  ARROW_RETURN_NOT_OK(lists->Append());
  ARROW_RETURN_NOT_OK(lists->AppendNull());
  return lists->Finish();
}

arrow::Result<std::shared_ptr<arrow::RecordBatch>> Nested() {
  arrow::Int64Builder numbers;
  ARROW_RETURN_NOT_OK(numbers.AppendValues({1, 2, 3}));
  ARROW_ASSIGN_OR_RAISE(auto k, numbers.Finish());
  ARROW_ASSIGN_OR_RAISE(auto tags, Tags());
  ARROW_ASSIGN_OR_RAISE(auto address, Addresses());
  ARROW_ASSIGN_OR_RAISE(auto labels, Labels());
  ARROW_ASSIGN_OR_RAISE(auto vector, Vectors());
  ARROW_ASSIGN_OR_RAISE(auto lines, Lines());
  std::vector<std::pair<std::string, std::shared_ptr<arrow::Array>>> columns = {
      {"tags", tags}, {"address", address}, {"labels", labels}, {"vector", vector}, {"lines", lines}};
  std::vector<std::shared_ptr<arrow::Field>> fields = {arrow::field("k", arrow::int64(), false)};
  std::vector<std::shared_ptr<arrow::Array>> arrays = {k};
  for (const auto& [name, array] : columns) {
    fields.push_back(arrow::field(name, array->type()));
    arrays.push_back(array);
  }
  return arrow::RecordBatch::Make(arrow::schema(fields), 3, arrays);
}

arrow::Result<std::shared_ptr<arrow::Table>> AllOf(flight::FlightClient& client, const std::string& name) {
  ARROW_ASSIGN_OR_RAISE(auto stream, client.DoGet(flight::Ticket{R"({"ordered": true, "table": ")" + name + "\"}"}));
  ARROW_ASSIGN_OR_RAISE(auto table, stream->ToTable());
  ARROW_RETURN_NOT_OK(table->ValidateFull());
  return table;
}

arrow::Status Upsert(flight::FlightClient& client, const std::string& name, const arrow::Table& table) {
  arrow::TableBatchReader batches(table);
  while (true) {
    ARROW_ASSIGN_OR_RAISE(auto batch, batches.Next());
    if (!batch) return arrow::Status::OK();
    ARROW_RETURN_NOT_OK(Write(client, R"({"op": "upsert", "table": ")" + name + "\"}", batch));
  }
}

arrow::Status Build(flight::FlightClient& client, const std::string& to) {
  ARROW_ASSIGN_OR_RAISE(auto batch, Nested());
  ARROW_ASSIGN_OR_RAISE(auto rows, arrow::Table::FromRecordBatches({batch}));
  ARROW_RETURN_NOT_OK(Upsert(client, to, *rows));
  ARROW_ASSIGN_OR_RAISE(auto back, AllOf(client, to));
  return back->Equals(*rows) ? arrow::Status::OK() : arrow::Status::Invalid("read:\n", back->ToString());
}

arrow::Status Copy(flight::FlightClient& client, const std::string& from, const std::string& to) {
  ARROW_ASSIGN_OR_RAISE(auto table, AllOf(client, from));
  return Upsert(client, to, *table);
}

arrow::Status RunAll(const std::string& url) {
  ARROW_ASSIGN_OR_RAISE(auto location, flight::Location::Parse(url));
  ARROW_ASSIGN_OR_RAISE(auto client, flight::FlightClient::Connect(location));
  std::string line, task, from, to;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    words >> task;
    if (task == "build") words >> to;
    else words >> from >> to;
    ARROW_RETURN_NOT_OK(task == "build" ? Build(*client, to) : Copy(*client, from, to));
    std::cout << "ready" << std::endl;
  }
  return client->Close();
}

int main(int argc, char** argv) {
  arrow::Status status = RunAll(argv[1]);
  if (!status.ok()) std::cerr << status.ToString() << "\n";
  return status.ok() ? 0 : 1;
}
