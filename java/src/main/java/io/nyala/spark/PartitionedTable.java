package io.nyala.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.nyala.spark.options.LocalRows;
import io.nyala.spark.options.TableProperties;
import io.nyala.spark.tables.Partitioning;
import io.nyala.spark.tables.TableDescription;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table of a catalog that is divided into tablets, which {@code SHOW PARTITIONS} lists: the range of each, and its
 * bucket of each hash level. Spark's own partitions are values of columns, so that they cannot be added or dropped as
 * such.
 */
final class PartitionedTable extends NyalaTable implements SupportsPartitionManagement {
  private static final String RANGE = "range";
  private static final String HASH = "hash";

  PartitionedTable(String name, StructType schema, CaseInsensitiveStringMap options, TableDescription about) {
    super(name, schema, options, true, about);
  }

  @Override
  public StructType partitionSchema() {
    List<Map<String, Object>> all = partitions();
    StructType found = new StructType();
    for (String name : all.isEmpty() ? List.<String>of() : all.get(0).keySet()) {
      found = found.add(name, name.startsWith(RANGE) ? DataTypes.StringType : DataTypes.IntegerType);
    }
    return found;
  }

  @Override
  public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow wanted) {
    StructType schema = partitionSchema();
    return partitions().stream()
        .map(each -> LocalRows.row(each.values().toArray()))
        .filter(row -> {
          for (int place = 0; place < names.length; place++) {
            int field = schema.fieldIndex(names[place]);
            Object asked = wanted.get(place, schema.apply(field).dataType());
            if (!Objects.equals(asked, row.get(field, schema.apply(field).dataType()))) {
              return false;
            }
          }
          return true;
        })
        .toArray(InternalRow[]::new);
  }

  @Override
  public void createPartition(InternalRow partition, Map<String, String> properties) {
    throw notOffered();
  }

  @Override
  public boolean dropPartition(InternalRow partition) {
    throw notOffered();
  }

  @Override
  public void replacePartitionMetadata(InternalRow partition, Map<String, String> properties) {
    throw notOffered();
  }

  @Override
  public Map<String, String> loadPartitionMetadata(InternalRow partition) {
    return Map.of();
  }

  /** Returns the partition of each tablet, all with the same names: null where a range lacks a hash level. */
  private List<Map<String, Object>> partitions() {
    List<JsonNode> hashes = new ArrayList<>();
    JsonNode ranges = null;
    for (JsonNode level : about().described().path("partitions")) {
      if (level.has(RANGE)) {
        ranges = level;
      } else {
        hashes.add(level);
      }
    }
    List<Map<String, Object>> found = new ArrayList<>();
    if (ranges == null) {
      putBuckets(Map.of(), hashes, found);
    } else {
      String name = named(RANGE, ranges.path(RANGE));
      for (JsonNode bound : ranges.path(TableProperties.BOUNDS)) {
        List<JsonNode> own = new ArrayList<>(bound.has(HASH) ? List.of() : hashes);
        bound.path(HASH).forEach(own::add);
        String range = Partitioning.range(bound.path("lower"), bound.path("upper"));
        putBuckets(Map.of(name, range), own, found);
      }
    }
    return alike(found);
  }

  private static void putBuckets(Map<String, Object> range, List<JsonNode> hashes, List<Map<String, Object>> found) {
    List<Map<String, Object>> made = List.of(new LinkedHashMap<>(range));
    for (JsonNode level : hashes) {
      String name = named(HASH, level.path(HASH));
      List<Map<String, Object>> divided = new ArrayList<>();
      for (Map<String, Object> each : made) {
        for (int bucket = 0; bucket < level.path("buckets").asInt(); bucket++) {
          Map<String, Object> one = new LinkedHashMap<>(each);
          one.put(name, bucket);
          divided.add(one);
        }
      }
      made = divided;
    }
    found.addAll(made);
  }

  private static List<Map<String, Object>> alike(List<Map<String, Object>> partitions) {
    Map<String, Object> names = new LinkedHashMap<>();
    partitions.forEach(each -> each.keySet().forEach(name -> names.put(name, null)));
    return partitions.stream().map(each -> {
      Map<String, Object> whole = new LinkedHashMap<>(names);
      whole.putAll(each);
      return whole;
    }).toList();
  }

  private static String named(String level, JsonNode columns) {
    List<String> names = new ArrayList<>();
    columns.forEach(column -> names.add(column.asText()));
    return level + "(" + String.join(", ", names) + ")";
  }

  private static UnsupportedOperationException notOffered() {
    return new UnsupportedOperationException(
        "the partitions of a table are ranges and buckets: CALL system.add_range_partition, drop_range_partition and "
            + "split_partition change ranges");
  }
}
