"""A table version with one tablet replaced by another that has the same rows."""

from ..table.table_version import TableVersion
from ..tablet.tablet import Tablet


def with_tablet(version: TableVersion, old: Tablet, new: Tablet) -> TableVersion:
    """Return the table version with ``new`` for ``old``, ready for the first batch."""
    kept = [tablet for tablet in version.tablets if tablet is not old]
    tablets = tuple(sorted((*kept, new), key=lambda tablet: tablet.tablet_id))
    changed = TableVersion(version.schema, version.options, tablets, version.partitions)
    _ = changed.router, changed.defaults, changed.default_bytes, changed.encoder
    return changed
