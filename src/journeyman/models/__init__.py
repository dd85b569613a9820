"""Models: the adapters to providers, models without one, and models around models.

Adapters are found by name (`connect`), or imported from their modules, such as `anthropic` (the Messages API). The
names below need no package of a provider. They are loaded when they are first used, so that a program pays for no more
than its own.
"""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.prices import price_for, prices_as_of
    from journeyman.models.wrappers import FallbackModel, RateLimitedModel, SwappableModel, WrapperModel

__all__ = ["FallbackModel", "RateLimitedModel", "SwappableModel", "WrapperModel", "price_for", "prices_as_of"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {"prices": "price_for prices_as_of", "wrappers": "FallbackModel RateLimitedModel SwappableModel WrapperModel"},
    )
