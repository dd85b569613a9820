"""Agents behind HTTP, for programs and pages."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.serve.api import AgentApp, Authorize, create_app
    from journeyman.serve.live import ServeLimits

__all__ = ["AgentApp", "Authorize", "ServeLimits", "create_app"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__, {"api": "AgentApp Authorize create_app", "live": "ServeLimits"}, {"serve": "ag_ui starlette uvicorn"}
    )
