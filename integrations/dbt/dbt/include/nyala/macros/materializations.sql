{# Models, seeds and snapshots. Each table is made by one statement, so there is nothing to swap. #}

{% materialization view, adapter='nyala' %}
  {% do exceptions.raise_compiler_error(nyala__no_views(this.identifier)) %}
{% endmaterialization %}

{% materialization table, adapter='nyala' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}
  {% call statement('main') -%}
    {{ create_table_as(False, target_relation, sql) }}
  {%- endcall %}
  {% do persist_docs(target_relation, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{% materialization incremental, adapter='nyala' %}
  {%- set target_relation = this.incorporate(type='table') -%}
  {%- set existing = load_cached_relation(this) -%}
  {%- set scratch = make_temp_relation(target_relation) -%}
  {%- set strategy = config.get('incremental_strategy') or ('merge' if config.get('unique_key') else 'append') -%}
  {%- set on_schema_change = incremental_validate_on_schema_change(config.get('on_schema_change'), default='ignore') -%}
  {% if strategy not in ('append', 'merge') %}
    {% do exceptions.raise_compiler_error(
      "there is no incremental_strategy '" ~ strategy ~ "': there are 'append' and 'merge'") %}
  {% endif %}
  {% if strategy == 'merge' and not config.get('unique_key') %}
    {% do exceptions.raise_compiler_error("incremental_strategy 'merge' needs a unique_key") %}
  {% endif %}

  {{ run_hooks(pre_hooks, inside_transaction=False) }}
  {{ run_hooks(pre_hooks, inside_transaction=True) }}

  {% if existing is none or should_full_refresh() %}
    {% call statement('main') -%}
      {{ create_table_as(False, target_relation, sql) }}
    {%- endcall %}
  {% else %}
    {% do run_query(create_table_as(True, scratch, sql)) %}
    {% set columns = process_schema_changes(on_schema_change, scratch, existing) %}
    {% if not columns %}
      {% set columns = adapter.get_columns_in_relation(existing) %}
    {% endif %}
    {% set predicates = config.get('predicates', none) or config.get('incremental_predicates', none) %}
    {% call statement('main') -%}
      {% if strategy == 'merge' %}
        {{ get_merge_sql(target_relation, scratch, config.get('unique_key'), columns, predicates) }}
      {% else %}
        {{ get_insert_into_sql(target_relation, scratch, columns) }}
      {% endif %}
    {%- endcall %}
    {% do adapter.drop_relation(scratch) %}
  {% endif %}

  {% do persist_docs(target_relation, model) %}
  {{ run_hooks(post_hooks, inside_transaction=True) }}
  {{ run_hooks(post_hooks, inside_transaction=False) }}
  {{ return({'relations': [target_relation]}) }}
{% endmaterialization %}

{# The columns of a key are those that rows are matched by: no statement may set them. #}
{% macro nyala__get_merge_update_columns(merge_update_columns, merge_exclude_columns, dest_columns) -%}
  {%- set key = config.get('primary_key') or config.get('unique_key') or [] -%}
  {%- set key = [key] if key is string else key -%}
  {%- set names = [] -%}
  {%- for column in dest_columns -%}
    {%- set is_chosen = column.name in merge_update_columns if merge_update_columns
        else column.name not in (merge_exclude_columns or []) -%}
    {%- if is_chosen and column.name not in key -%}
      {%- do names.append(column.quoted) -%}
    {%- endif -%}
  {%- endfor -%}
  {{ return(names) }}
{%- endmacro %}

{% macro nyala__get_merge_sql(target, source, unique_key, dest_columns, incremental_predicates=none) -%}
  {%- set keys = [unique_key] if unique_key is string else unique_key -%}
  {%- set conditions = [] + (incremental_predicates or []) -%}
  {%- for key in keys -%}
    {%- do conditions.append("DBT_INTERNAL_SOURCE." ~ adapter.quote(key) ~ " = DBT_INTERNAL_DEST." ~ adapter.quote(key)) -%}
  {%- endfor -%}
  {%- set updated = get_merge_update_columns(config.get('merge_update_columns'), config.get('merge_exclude_columns'), dest_columns) -%}
  {%- set names = get_quoted_csv(dest_columns | map(attribute='name')) -%}
  merge into {{ target.render() }} as DBT_INTERNAL_DEST
  using {{ source.render() }} as DBT_INTERNAL_SOURCE
  on ({{ conditions | join(') and (') }})
  {% if updated -%}
  when matched then update set
    {%- for name in updated %} {{ name }} = DBT_INTERNAL_SOURCE.{{ name }}{{ ',' if not loop.last }} {%- endfor %}
  {% endif -%}
  when not matched then insert ({{ names }}) values (
    {%- for column in dest_columns %}DBT_INTERNAL_SOURCE.{{ column.quoted }}{{ ', ' if not loop.last }} {%- endfor -%}
  )
{%- endmacro %}

{% macro nyala__post_snapshot(staging_relation) -%}
  {% do adapter.drop_relation(staging_relation) %}
{%- endmacro %}

{% macro nyala__create_csv_table(model, agate_table) -%}
  {%- set types = model['config'].get('column_types', {}) -%}
  {%- set names = agate_table.column_names | list -%}
  {%- set key, is_unique = adapter.primary_key_of(config, model, names) -%}
  {%- set ordered = key + (names | reject('in', key) | list) -%}
  {%- set sql -%}
    create table {{ this.render() }} (
      {%- for name in ordered %}
      {{ adapter.quote(name) }} {{ types.get(name, adapter.convert_type(agate_table, names.index(name))) }},
      {%- endfor %}
      primary key ({{ get_quoted_csv(key) }})
    ) {{- nyala__partitions() }} {{- nyala__options(is_unique) }}
  {%- endset -%}
  {% call statement('_') -%}
    {{ sql }}
  {%- endcall %}
  {{ return(sql) }}
{%- endmacro %}

{% macro nyala__load_csv_rows(model, agate_table) -%}
  {% do adapter.load_rows(this, agate_table) %}
  {{ return("-- the rows are sent as Arrow batches") }}
{%- endmacro %}
