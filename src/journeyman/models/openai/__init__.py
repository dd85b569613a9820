"""OpenAI's two APIs, and the services that speak one of them."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.openai.chat import OpenAIChatModel
    from journeyman.models.openai.endpoint import OPENAI, Endpoint
    from journeyman.models.openai.responses import OpenAIModel

__all__ = [
    "OPENAI",
    "Endpoint",
    "OpenAIChatModel",
    "OpenAIModel",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "chat": "OpenAIChatModel",
            "endpoint": "OPENAI Endpoint",
            "responses": "OpenAIModel",
        },
    )
