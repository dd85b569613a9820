"""Many inputs for one agent: a run for each, some of them at once, within one budget and one rate limit."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.batch.batch import Batch, BatchOptions, Order, run_many
    from journeyman.batch.table import TableError, TableRow, read_table, separator_meant

__all__ = ["Batch", "BatchOptions", "Order", "TableError", "TableRow", "read_table", "run_many", "separator_meant"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {"batch": "Batch BatchOptions Order run_many", "table": "TableError TableRow read_table separator_meant"},
    )
