"""A program that sends to a collector what its runs do."""

from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Tracer

from journeyman import Runtime
from journeyman.otel import OpenTelemetry
from tests.support.otlp import Collector


class Sending:
    """Sends to a collector what its telemetry is told."""

    def __init__(self, collector: Collector) -> None:
        self.collector = collector
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{collector.url}/v1/traces")))
        figures = PeriodicExportingMetricReader(OTLPMetricExporter(f"{collector.url}/v1/metrics"))
        self.meters = MeterProvider([figures], shutdown_on_exit=False)
        self.own: Tracer = self.tracers.get_tracer("a program's own")

    def telemetry(self, **options: Any) -> OpenTelemetry:
        return OpenTelemetry(self.tracers, self.meters, **options)

    def runtime(self, **options: Any) -> Runtime:
        return Runtime(telemetry=self.telemetry(**options))

    def received(self) -> Collector:
        """Send all that waits, and return what came."""
        self.tracers.force_flush()
        self.meters.force_flush()
        return self.collector
