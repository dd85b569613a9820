"""Models: the adapters to providers, models without one, and models around models.

Adapters are found by name (`connect`), or imported from their modules, such as `anthropic` (the Messages API). The
names below need no package of a provider. They are loaded when they are first used, so that a program pays for no more
than its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from journeyman.models.faulty import Faulty
    from journeyman.models.prices import PriceTable, load_prices, price_for, prices_as_of
    from journeyman.models.rate_limit import RateLimited
    from journeyman.models.scripted import FromFunction, Scripted
    from journeyman.models.wrappers import Fallback, Swappable

__all__ = [
    "Fallback",
    "Faulty",
    "FromFunction",
    "PriceTable",
    "RateLimited",
    "Scripted",
    "Swappable",
    "load_prices",
    "price_for",
    "prices_as_of",
]

_HOMES = {
    "faulty": "Faulty",
    "prices": "PriceTable load_prices price_for prices_as_of",
    "rate_limit": "RateLimited",
    "scripted": "FromFunction Scripted",
    "wrappers": "Fallback Swappable",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'journeyman.models' has no attribute {name!r}")
    value: object = getattr(import_module(f"journeyman.models.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
