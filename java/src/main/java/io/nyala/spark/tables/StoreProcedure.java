package io.nyala.spark.tables;

import io.nyala.flight.StoreException;
import io.nyala.spark.options.LocalRows;
import io.nyala.spark.options.PlanError;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.SimpleProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** A procedure of {@code CALL}, whose parameters are texts: {@code body} does it, and returns rows to show. */
public record StoreProcedure(
    String name, String description, ProcedureParameter[] parameters, StructType shown,
    Function<List<String>, List<InternalRow>> body) implements SimpleProcedure {
  public static ProcedureParameter needed(String name) {
    return ProcedureParameter.in(name, DataTypes.StringType).build();
  }

  /** Returns a parameter that may be left out; {@code sql} is then its value. */
  public static ProcedureParameter optional(String name, String sql) {
    return ProcedureParameter.in(name, DataTypes.StringType).defaultValue(sql).build();
  }

  @Override
  public boolean isDeterministic() {
    return false;
  }

  @Override
  public Iterator<Scan> call(InternalRow input) {
    List<String> given = new ArrayList<>();
    for (int place = 0; place < parameters.length; place++) {
      UTF8String text = input.isNullAt(place) ? null : input.getUTF8String(place);
      given.add(text == null ? null : text.toString());
    }
    try {
      return List.<Scan>of(LocalRows.of(shown, body.apply(given))).iterator();
    } catch (StoreException error) {
      throw PlanError.thrown(error);
    } catch (IllegalArgumentException error) {
      throw PlanError.invalid(error.getMessage());
    }
  }
}
