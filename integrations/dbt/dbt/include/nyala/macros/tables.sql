{# Tables: how they are made, changed and named. #}

{% macro nyala__get_columns_in_relation(relation) -%}
  {{ return(adapter.get_columns_in_relation(relation)) }}
{%- endmacro %}

{% macro nyala__create_schema(relation) -%}
  {# There is one schema, and it is there. #}
{%- endmacro %}

{% macro nyala__drop_schema(relation) -%}
  {% do exceptions.raise_compiler_error("a server has one schema, which stays: drop its tables") %}
{%- endmacro %}

{% macro nyala__drop_relation(relation) -%}
  {% call statement('drop_relation', auto_begin=false) -%}
    drop table if exists {{ relation.render() }}
  {%- endcall %}
{%- endmacro %}

{% macro nyala__truncate_relation(relation) -%}
  {% call statement('truncate_relation') -%}
    truncate table {{ relation.render() }}
  {%- endcall %}
{%- endmacro %}

{% macro nyala__rename_relation(from_relation, to_relation) -%}
  {% call statement('rename_relation') -%}
    alter table {{ from_relation.render() }} rename to {{ adapter.quote(to_relation.identifier) }}
  {%- endcall %}
{%- endmacro %}

{% macro nyala__alter_column_type(relation, column_name, new_column_type) -%}
  {% call statement('alter_column_type') -%}
    alter table {{ relation.render() }} alter column {{ adapter.quote(column_name) }} type {{ new_column_type }}
  {%- endcall %}
{%- endmacro %}

{% macro nyala__create_columns(relation, columns) -%}
  {% for column in columns %}
    {% call statement() -%}
      alter table {{ relation.render() }} add column {{ column.quoted }} {{ column.data_type }}
    {%- endcall %}
  {% endfor %}
{%- endmacro %}

{# A table, in one step with its rows, in the place of one that has the name. A scratch table of dbt is an ordinary one
   whose rows may share the model's key; it goes at the end. #}
{% macro nyala__create_table_as(temporary, relation, sql) -%}
  {%- if config.get('contract').enforced and not temporary -%}
    {{ get_assert_columns_equivalent(sql) }}
    {%- set sql = get_select_subquery(sql) -%}
  {%- endif -%}
  {%- set names = get_column_schema_from_query(sql) | map(attribute='name') | list -%}
  {%- set columns = adapter.columns_to_keep(names) -%}
  {%- if columns | length < names | length -%}
    {%- set sql = "select " ~ get_quoted_csv(columns) ~ " from (" ~ sql ~ ") as unnumbered" -%}
  {%- endif -%}
  {%- set key, is_unique = adapter.primary_key_of(config, model, columns) -%}
  create or replace table {{ relation.render() }} (primary key ({{ get_quoted_csv(key) }}))
  {{- nyala__partitions() if not temporary }}
  {{- nyala__options(is_unique and not temporary, temporary) }}
  as {{ sql }}
{%- endmacro %}

{% macro nyala__partitions() -%}
  {%- set by = config.get('partition_by') -%}
  {%- if by %} partition by {{ by }} {%- endif -%}
{%- endmacro %}

{% macro nyala__options(is_unique, temporary=false) -%}
  {%- set options = [] -%}
  {%- if not is_unique -%}
    {%- do options.append('unique_key = false') -%}
  {%- endif -%}
  {%- for name, value in ({} if temporary else config.get('table_options', {})).items() -%}
    {%- do options.append(name ~ " = '" ~ (value | string | replace("'", "''")) ~ "'") -%}
  {%- endfor -%}
  {%- if options %} with ({{ options | join(', ') }}) {%- endif -%}
{%- endmacro %}

{% macro nyala__create_view_as(relation, sql) -%}
  {% do exceptions.raise_compiler_error(nyala__no_views(relation.identifier)) %}
{%- endmacro %}

{% macro nyala__no_views(name) -%}
  {{ return(name ~ ": there are no views: set materialized to 'table', 'incremental' or 'ephemeral'") }}
{%- endmacro %}

{% macro nyala__current_timestamp() -%}
  now()
{%- endmacro %}

{% macro nyala__snapshot_get_time() -%}
  cast(now() as timestamp)
{%- endmacro %}

{% macro nyala__snapshot_string_as_time(timestamp) -%}
  {{ return("cast('" ~ timestamp ~ "' as timestamp)") }}
{%- endmacro %}

{% macro nyala__alter_relation_comment(relation, comment) -%}
  comment on table {{ relation.render() }} is '{{ comment | replace("'", "''") }}'
{%- endmacro %}

{% macro nyala__persist_docs(relation, model, for_relation, for_columns) -%}
  {% if for_relation and config.persist_relation_docs() and model.description %}
    {% do run_query(alter_relation_comment(relation, model.description)) %}
  {% endif %}
  {% if for_columns and config.persist_column_docs() and model.columns %}
    {% set there = adapter.get_columns_in_relation(relation) | map(attribute='name') | list %}
    {% set columns = validate_doc_columns(relation, model.columns, there) %}
    {% for name in columns if columns[name]['description'] %}
      {% do run_query("comment on column " ~ relation.render() ~ "." ~ adapter.quote(name) ~ " is '"
                      ~ (columns[name]['description'] | replace("'", "''")) ~ "'") %}
    {% endfor %}
  {% endif %}
{%- endmacro %}

{% macro nyala__get_catalog(information_schema, schemas) -%}
  {{ return(nyala__catalog_of("table_schema = 'public'")) }}
{%- endmacro %}

{% macro nyala__get_catalog_relations(information_schema, relations) -%}
  {%- set names = [] -%}
  {%- for relation in relations -%}
    {%- do names.append("'" ~ (relation.identifier | replace("'", "''")) ~ "'") -%}
  {%- endfor -%}
  {{ return(nyala__catalog_of("table_name in (" ~ (names | join(', ')) ~ ")")) }}
{%- endmacro %}

{% macro nyala__catalog_of(condition) -%}
  {% call statement('catalog', fetch_result=True) -%}
    select
      table_catalog as table_database, table_schema, table_name, 'BASE TABLE' as table_type,
      cast(null as varchar) as table_comment, cast(null as varchar) as table_owner,
      column_name, ordinal_position as column_index, data_type as column_type, cast(null as varchar) as column_comment
    from information_schema.columns
    where table_schema = 'public' and {{ condition }}
    order by table_name, column_index
  {%- endcall %}
  {{ return(load_result('catalog').table) }}
{%- endmacro %}
