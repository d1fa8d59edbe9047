{{ config(materialized='ephemeral') }}
select * from (
    select *, row_number() over (partition by home order by seen desc) as place from {{ ref('raw_sales') }}
) as placed where place = 1
