"""Orders of a shop, loaded twice: the second load changes an order and adds another.

nyala serve --data data/ &
pip install . ./integrations/dlt
python integrations/dlt/example/shop.py grpc://localhost:8815
"""

import sys

import dlt
import dlt_nyala

MORNING = [
    {"id": 1, "customer": "Ada", "items": [{"sku": "lamp", "count": 1}, {"sku": "bulb", "count": 4}]},
    {"id": 2, "customer": "Grace", "items": [{"sku": "desk", "count": 1}]},
]
EVENING = [
    {"id": 1, "customer": "Ada", "items": [{"sku": "lamp", "count": 2}]},  # the bulbs are gone
    {"id": 3, "customer": "Edsger", "note": "ring twice", "items": []},  # a column that is new
]

if __name__ == "__main__":
    pipeline = dlt.pipeline("shop", destination=dlt_nyala.nyala(sys.argv[1]))
    for orders in (MORNING, EVENING):
        print(pipeline.run(orders, table_name="orders", write_disposition="merge", primary_key="id"))
