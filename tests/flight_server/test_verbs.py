"""Every verb does what docs/flight.md says, over a store of dicts and over the engine."""

import json
from contextlib import closing

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from nyala.clients.flight.store import FlightStore
from nyala.schemas.protocol.server_verbs import ACTIONS
from nyala.schemas.store.whereabouts import Whereabouts
from tests.flight_server.served import SCHEMA, Served, code_of

KEY = {"name": "k", "type": "int32", "nullable": False}


def test_put_by_path_upserts_and_answers_once(served: Served) -> None:
    (answer,) = served.put("homes", served.rows(3), served.rows(4, start=2))
    assert answer["rows"] == answer["applied"] == 7 and answer["seq"] is None
    assert answer["ignored"] == answer["error_count"] == 0 and answer["errors"] == []
    assert served.ids() == [0, 1, 2, 3, 4, 5]


def test_put_answers_each_batch_that_carries_a_number(served: Served) -> None:
    batches = [served.rows(2, start) for start in (0, 2, 4)]
    metadata = (b'{"seq":7}', b"", b'{"seq":9}')
    answers = served.put({"table": "homes", "op": "insert"}, *batches, metadata=metadata)
    assert [answer["seq"] for answer in answers] == [7, 9, None]
    assert [answer["rows"] for answer in answers] == [2, 2, 2]
    assert answers[0]["timestamp"] < answers[2]["timestamp"] < answers[1]["timestamp"]
    assert answers[0]["durability"] == "fsync"


def test_put_reports_rows_by_their_place_in_the_stream(served: Served) -> None:
    served.put("homes", served.rows(1, start=3))
    (answer,) = served.put({"table": "homes", "op": "insert"}, served.rows(2), served.rows(3, start=2))
    assert (answer["rows"], answer["applied"], answer["error_count"]) == (5, 4, 1)
    (error,) = answer["errors"]
    assert (error["row"], error["code"]) == (3, "ALREADY_PRESENT")


def test_put_of_nothing_is_answered(served: Served) -> None:
    (answer,) = served.put("homes")
    assert answer["rows"] == 0 and answer["timestamp"] > 0


def test_put_of_rows_asks_for_no_description(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(type(served.store), "describe_table")  # which takes a round trip in a gateway
    (answer,) = served.put("homes", served.rows(2))
    assert answer["applied"] == 2


def test_put_takes_messages_without_a_batch(served: Served) -> None:
    writer, reader = served.client.do_put(fl.FlightDescriptor.for_path("homes"), SCHEMA)
    writer.write_metadata(b"hello")
    writer.write_batch(served.rows(2))
    writer.write_metadata(b"bye")
    writer.done_writing()
    assert json.loads(reader.read().to_pybytes())["applied"] == 2
    writer.close()


def test_get_selects(served: Served) -> None:
    served.put("homes", served.rows(10))
    where = {"op": "and", "args": [{"op": ">", "column": "id", "value": 6}]}
    found = served.get({"table": "homes", "columns": ["price", "id"], "where": where, "ordered": True, "limit": 2})
    assert found.to_pydict() == {"price": [7.0, 8.0], "id": [7, 8]}


def test_get_of_no_rows_has_the_schema(served: Served) -> None:
    assert served.get({"table": "homes"}).schema.equals(SCHEMA, check_metadata=True)


def test_get_without_columns_counts(served: Served) -> None:
    served.put("homes", served.rows(5000))
    reader = served.client.do_get(fl.Ticket(b'{"table":"homes","columns":[]}'))
    assert sum(chunk.data.num_rows for chunk in reader) == 5000


def test_info_pins_its_tickets_to_one_snapshot(served: Served) -> None:
    served.put("homes", served.rows(3))
    info = served.client.get_flight_info(fl.FlightDescriptor.for_path("homes"))
    served.put("homes", served.rows(3, start=3))
    found = pa.concat_tables([served.client.do_get(end.ticket).read_all() for end in info.endpoints])
    assert sorted(found["id"].to_pylist()) == [0, 1, 2]
    assert info.schema.equals(found.schema, check_metadata=True)
    about = json.loads(info.app_metadata)
    assert set(about) - {"lease"} == {"snapshot", "schema_version"} and about["schema_version"] == 1
    (part,) = [json.loads(end.app_metadata) for end in info.endpoints]
    assert set(part) == {"tablet", "rows", "bytes"} and part["rows"] == info.total_records == 3


@pytest.mark.parametrize("extra", [{}, {"ordered": True}, {"limit": 2}, {"columns": ["city"]}, {"columns": []}])
def test_info_of_a_command_has_the_schema_of_its_stream(served: Served, extra: dict) -> None:
    served.put("homes", served.rows(4))
    descriptor = fl.FlightDescriptor.for_command(json.dumps({"table": "homes", "split_bytes": 1000, **extra}))
    info = served.client.get_flight_info(descriptor)
    (end,) = info.endpoints
    found = served.client.do_get(end.ticket).read_all()
    assert info.schema.equals(found.schema, check_metadata=True)
    assert served.client.get_schema(descriptor).schema.equals(found.schema, check_metadata=True)
    assert info.ordered == ("ordered" in extra or "limit" in extra)


def test_list_flights_names_every_table(served: Served) -> None:
    served.action("create_table", {"name": "b", "columns": [KEY], "primary_key": ["k"]})
    assert [info.descriptor.path for info in served.client.list_flights()] == [[b"b"], [b"homes"]]


def test_actions_make_describe_and_drop_a_table(served: Served) -> None:
    columns = [KEY, {"name": "v", "type": "varchar(9)", "encoding": "plain"}]
    body = {"name": "t", "columns": columns, "primary_key": ["k"]}
    made = served.action("create_table", body)
    assert [column["encoding"] for column in made["columns"]] == ["auto", "plain"]
    assert served.action("describe_table", {"table": "t"}) == made == served.action("describe_table", {"name": "t"})
    assert served.action("table_stats", {"table": "t"})["live_rows"] == 0
    assert served.action("maintain", {"table": "t", "op": "flush"})["op"] == "flush"
    assert served.action("drop_table", {"table": "t"}) == {}
    with pytest.raises(fl.FlightServerError) as caught:
        served.action("describe_table", {"table": "t"})
    assert code_of(caught.value) == "NOT_FOUND"


def test_actions_say_how_the_store_is(served: Served) -> None:
    (answer,) = served.put("homes", served.rows(2))
    assert served.action("now")["timestamp"] >= answer["timestamp"]
    assert served.action("health")["status"] == "ok"
    assert served.action("explain", {"table": "homes"})["splits"][0]["rows"] == 2


def test_list_actions_documents_each(served: Served) -> None:
    listed = {action.type: action.description for action in served.client.list_actions()}
    assert set(listed) == set(ACTIONS) and all(listed.values())


def test_exchange_reads_by_key(served: Served) -> None:
    served.put("homes", served.rows(10))
    keys = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    writer, reader = served.client.do_exchange(fl.FlightDescriptor.for_command(b'{"table":"homes"}'))
    writer.begin(keys)
    for wanted in ([7, 99, 2], [100], [1]):
        writer.write_batch(pa.record_batch([pa.array(wanted, pa.int64())], schema=keys))
        chunk = reader.read_chunk()
        assert chunk.data["id"].to_pylist() == [key for key in wanted if key < 10]
        assert json.loads(chunk.app_metadata.to_pybytes()) == {"rows": chunk.data.num_rows}
    writer.done_writing()
    assert reader.schema.equals(SCHEMA)
    writer.close()


def test_where_tells_that_the_server_has_its_store(served: Served) -> None:
    found = Whereabouts.model_validate(served.action("where"))
    assert (found.name, found.state) == (None, "holder")
    assert found.holder is not None and found.holder.locations == [] and len(found.holder.process) == 32
    with closing(FlightStore(served.url)) as store:
        assert store.whereabouts() == found
