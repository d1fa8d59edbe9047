{{ config(materialized='incremental') }}
select sale, home from {{ ref('raw_sales') }}
{% if is_incremental() %}
where sale > (select max(sale) from {{ this }})
{% endif %}
