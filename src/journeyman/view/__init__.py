"""The viewer: recorded and durable runs in a browser, while they go on and afterwards."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.view.asgi import create_viewer, serve_view

__all__ = ["create_viewer", "serve_view"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"asgi": "create_viewer serve_view"}, {"view": "starlette uvicorn"})
