{{ config(materialized='incremental', unique_key='home', on_schema_change='append_new_columns') }}
select home, city, price, seen from {{ ref('latest') }}
{% if is_incremental() %}
where seen > (select max(seen) from {{ this }})
{% endif %}
