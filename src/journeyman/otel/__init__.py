"""Reports runs as OpenTelemetry's traces and metrics: `Host(telemetry=OpenTelemetry())`."""

from typing import TYPE_CHECKING

from journeyman.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.otel.export import Exporting, exporting
    from journeyman.otel.telemetry import OpenTelemetry

__all__ = ["Exporting", "OpenTelemetry", "exporting"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"export": "Exporting exporting", "telemetry": "OpenTelemetry"})
