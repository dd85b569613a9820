"""Many inputs for one agent: a run for each, some of them at once, within one budget and one rate limit."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.batch.batch import Batch, BatchOptions, Order, run_many

__all__ = ["Batch", "BatchOptions", "Order", "run_many"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"batch": "Batch BatchOptions Order run_many"})
