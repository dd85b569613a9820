"""The means by which classes define, check and explain their fields, and narrow values of any kind.

Problems of a definition, frozen data, types narrowed at run time, numbers of JSON, references by name, lazy faces.
"""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.definition.problems import Problem

__all__ = ["Problem"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"problems": "Problem"})
