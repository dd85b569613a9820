"""Models for tests: they play a script or a function, or spoil what another model answers. None needs a key."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.testing.faulty import FaultyModel
    from journeyman.testing.scripted import Answer, FunctionModel, Policy, ScriptedModel, call, say

__all__ = ["Answer", "FaultyModel", "FunctionModel", "Policy", "ScriptedModel", "call", "say"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__, {"faulty": "FaultyModel", "scripted": "Answer FunctionModel Policy ScriptedModel call say"}
    )
