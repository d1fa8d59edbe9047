{{ config(primary_key='city') }}
select city, count(*) as sales, sum(price) as price from {{ ref('raw_sales') }} group by city
