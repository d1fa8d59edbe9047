"""Loads by dlt into a Nyala server: ``dlt.pipeline(destination=dlt_nyala.nyala("grpc://localhost:8815"))``.

``destination``: its options and abilities. ``configuration``: where the server is. ``client``: tables, schemas and the
state of pipelines. ``jobs``: the files of a load. ``tables``: keys, columns and rows, as Nyala has them.
"""

from .destination import nyala

__all__ = ["nyala"]
