"""A layout in which another tablet, of the same rows, stands in the place of one."""

from ..table.layout import Layout
from ..tablet.tablet import Tablet


def with_tablet(layout: Layout, old: Tablet, new: Tablet) -> Layout:
    """Return the layout with ``new`` for ``old``, ready for the first batch."""
    kept = [tablet for tablet in layout.tablets if tablet is not old]
    tablets = tuple(sorted((*kept, new), key=lambda tablet: tablet.tablet_id))
    changed = Layout(layout.schema, layout.options, tablets, layout.partitions)
    _ = changed.router, changed.defaults, changed.default_bytes, changed.encoder
    return changed
