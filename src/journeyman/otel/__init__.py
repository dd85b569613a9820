"""Reports runs as OpenTelemetry's traces and metrics: `Runtime(telemetry=OpenTelemetry())`."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.otel.export import Exporting, configure_exporter
    from journeyman.otel.telemetry import OpenTelemetry

__all__ = ["Exporting", "OpenTelemetry", "configure_exporter"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(__name__, {"export": "Exporting configure_exporter", "telemetry": "OpenTelemetry"})
