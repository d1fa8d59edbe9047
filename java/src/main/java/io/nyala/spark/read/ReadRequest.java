package io.nyala.spark.read;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nyala.flight.Credentials;
import io.nyala.flight.FlightStore;
import io.nyala.flight.Json;
import io.nyala.flight.ScanParts;
import io.nyala.flight.StoreException;
import io.nyala.flight.StoreIdentity;
import io.nyala.spark.options.ColumnNames;
import io.nyala.spark.options.ColumnTypes;
import io.nyala.spark.options.PlanError;
import io.nyala.spark.options.ReadOptions;
import io.nyala.spark.options.TableOptions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** One scan's request to the store: columns, filter, measures and moment. For one thread. */
final class ReadRequest {
  private final StructType schema;
  private final String uri;
  private final Credentials credentials;
  private final Pushed pushed;
  private final String ofUser;
  private final ObjectNode scan;
  private boolean isResolved;

  /** {@code schema} are the columns that Spark expects, or those of the groups and measures. */
  ReadRequest(StructType schema, CaseInsensitiveStringMap options, Pushed pushed) {
    this.schema = schema;
    this.uri = ReadOptions.uri(options);
    this.credentials = TableOptions.credentials(options);
    this.pushed = pushed;
    this.ofUser = options.get("filter");
    this.scan = ReadOptions.scan(options);
    pushed.putWhere(scan, ofUser, name -> name);
    pushed.putInto(scan);
    if (!scan.has("aggregate")) {
      putColumns(List.of(schema.fieldNames()));
    }
  }

  /** Returns the parts of the scan, at a moment of the store, or at the scan's own if it is null. */
  ScanParts plan(ScanParts.Moment moment) {
    if (moment != null && scan.get("changes") instanceof ObjectNode changes) {
      changes.put("until", moment.snapshot());
    } else if (moment != null) {
      scan.put("as_of", moment.snapshot());
    }
    StoreIdentity same = moment == null ? StoreIdentity.UNKNOWN : moment.store();
    return pushed.of(asked(what -> store().plan(what, same)), scan);
  }

  /** Returns the tasks' factory of readers for a plan. Checks that the columns are those that Spark expects. */
  PartReaderFactory readers(ScanParts plan) {
    List<Field> fields = plan.schema().getFields();
    int[] places = new int[schema.length()];
    for (int place = 0; place < places.length; place++) {
      places[place] = placeOf(schema.apply(place), fields);
    }
    return new PartReaderFactory(
        uri, credentials, plan.moment().store(), schema, places, SQLConf.get().sessionLocalTimeZone());
  }

  private FlightStore store() {
    return FlightStore.at(uri, credentials);
  }

  private <T> T asked(Function<ObjectNode, T> ask) {
    try {
      return askedByNames(ask);
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    }
  }

  /** Asks with the names as Spark has them; if the store does not know these, with its own names for them. */
  private <T> T askedByNames(Function<ObjectNode, T> ask) {
    try {
      return ask.apply(scan);
    } catch (StoreException error) {
      if (!error.is(StoreException.INVALID_ARGUMENT) || isResolved || !resolve()) {
        throw error;
      }
      return ask.apply(scan);
    }
  }

  /** Takes the table's own names for columns that differ in case; returns whether any does. */
  private boolean resolve() {
    isResolved = true;
    List<String> known = new ArrayList<>();
    JsonNode table = store().ask("describe_table", Map.of("table", scan.get("table").asText()));
    table.path("columns").forEach(column -> known.add(column.path("name").asText()));
    JsonNode before = scan.deepCopy();
    pushed.putWhere(scan, ofUser, name -> ColumnNames.same(name, known));
    if (scan.get("aggregate") instanceof ObjectNode measures) {
      resolve(measures, known);
    } else {
      resolveColumns(known);
    }
    return !before.equals(scan);
  }

  private void resolveColumns(List<String> known) {
    scan.path("order_by").forEach(term ->
        ((ObjectNode) term).put("column", ColumnNames.same(term.path("column").asText(), known)));
    putColumns(Stream.of(schema.fieldNames()).map(name -> {
      String before = name.startsWith(ColumnNames.BEFORE) ? ColumnNames.BEFORE : "";
      return before + ColumnNames.same(name.substring(before.length()), known);
    }).toList());
  }

  private void resolve(ObjectNode measures, List<String> known) {
    measures.forEach(measure -> {
      if (measure instanceof ArrayNode pair && pair.size() == 2) {
        pair.set(0, ColumnNames.same(pair.get(0).asText(), known));
      }
    });
    if (scan.get("group_by") instanceof ArrayNode groups) {
      for (int place = 0; place < groups.size(); place++) {
        groups.set(place, ColumnNames.same(groups.get(place).asText(), known));
      }
    }
  }

  /** Asks for the columns of the table behind those of a scan or of its changes. */
  private void putColumns(List<String> names) {
    Set<String> columns = new LinkedHashSet<>();
    for (String name : names) {
      String own = name.startsWith(ColumnNames.BEFORE) ? name.substring(ColumnNames.BEFORE.length()) : name;
      if (!List.of("_op", "_timestamp").contains(own)) { // those of the change feed
        columns.add(own);
      }
    }
    ArrayNode array = scan.putArray("columns");
    columns.forEach(array::add);
  }

  private static int placeOf(StructField asked, List<Field> fields) {
    List<String> names = fields.stream().map(Field::getName).toList();
    int place = names.indexOf(ColumnNames.known(asked.name(), names));
    Field have = fields.get(place);
    DataType type = ColumnTypes.of(have);
    if (!readsAs(type, asked.dataType())) {
      throw new IllegalArgumentException("column '" + asked.name() + "' is " + type.simpleString() + ", not "
          + asked.dataType().simpleString() + ": leave out the schema, load the table again if it was altered, or "
          + "cast in Spark");
    }
    if (have.isNullable() && !asked.nullable()) {
      throw new IllegalArgumentException(
          "column '" + asked.name() + "' may be NULL, but the schema declares it NOT NULL");
    }
    return place;
  }

  private static boolean readsAs(DataType have, DataType asked) {
    return have instanceof StringType ? asked instanceof StringType : have.equals(ofMoments(asked));
  }

  /** Returns a type with moments in place of times of a clock. */
  private static DataType ofMoments(DataType type) {
    if (type instanceof ArrayType list) {
      return new ArrayType(ofMoments(list.elementType()), list.containsNull());
    }
    if (type instanceof MapType map) {
      return new MapType(ofMoments(map.keyType()), ofMoments(map.valueType()), map.valueContainsNull());
    }
    if (type instanceof StructType struct) {
      return new StructType(Arrays.stream(struct.fields())
          .map(each -> new StructField(each.name(), ofMoments(each.dataType()), each.nullable(), each.metadata()))
          .toArray(StructField[]::new));
    }
    return type instanceof TimestampNTZType ? DataTypes.TimestampType : type;
  }
}
