"""The names that stood here are those of `journeyman.testing` now."""

from functools import partial

from journeyman.definition.faces import refuse_name

__getattr__ = partial(refuse_name, __name__)
