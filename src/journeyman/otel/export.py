"""Sending telemetry for commands: the SDK and its exporter, set up by the standard environment variables `OTEL_…`.

A collector that is missing or does not answer slows nothing down, and is logged once.
"""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType
from typing import Final

from journeyman.closing import TimeToEnd
from journeyman.hosts.proxies import shown_address
from journeyman.otel.telemetry import OpenTelemetry

try:
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricReader, PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
except ImportError as error:
    raise ImportError("The packages for sending telemetry are not installed: pip install 'journeyman[otel]'") from error

_log = logging.getLogger("journeyman")
_LAST_S: Final = 5.0
"""How long what has not been sent yet may take in the end, in seconds."""
# Where OpenTelemetry's exporters send when nothing else is said.
_ENDPOINT: Final = "http://localhost:4318"
# The last two are how OpenTelemetry's own packages are told to put content into spans.
_TRUE: Final = frozenset(("true", "1", "span_only", "span_and_event"))
_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_LOGGERS: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
)
"""Where the SDK says that something could not be sent, each time."""


class Exporting:
    """An exporter that sends what its `telemetry` reports until it is closed; inside of
    `with configure_exporter() as telemetry:`."""

    def __init__(self, tracers: TracerProvider, meters: MeterProvider, *, content: bool) -> None:
        self.telemetry: Final = OpenTelemetry(tracers, meters, content=content)
        self._tracers = tracers
        self._meters = meters
        self._once = _Once()
        # A filter of a logger is not asked for those below it.
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self._once)

    def close(self, end: TimeToEnd | None = None) -> None:
        """Send what waits, within a few seconds; `end`: within a part of what is left of that time."""
        within_s = _LAST_S if end is None else end.part_s(_LAST_S)
        # In a thread, since the tracers' `shutdown` takes no limit; and the program may end without it.
        closing = threading.Thread(target=self._shut_down, name="journeyman telemetry", daemon=True)
        closing.start()
        closing.join(within_s)
        if closing.is_alive():
            self._once.tell(f"the last of it did not go out within {within_s:.2g} s")

    def _shut_down(self) -> None:
        for provider in (self._tracers, self._meters):
            try:
                provider.shutdown()
            except Exception as error:  # noqa: BLE001 - of the SDK
                self._once.tell(str(error))

    def __enter__(self) -> OpenTelemetry:
        return self.telemetry

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Once(logging.Filter):
    """A filter that logs once what the SDK logs again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._has_told = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.WARNING:
            self.tell(record.getMessage().partition("\n")[0])
        return False

    def tell(self, words: str) -> None:
        """Say that something was not sent, if nobody has said so."""
        if not self._has_told:
            self._has_told = True
            given = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
                "OTEL_EXPORTER_OTLP_ENDPOINT"
            )
            shown = shown_address((given or _ENDPOINT).partition("?")[0])
            _log.warning("telemetry cannot be sent to %s: %s. Nothing else changes.", shown, words.rstrip("."))


def configure_exporter() -> Exporting:
    """Set the SDK up as the environment says: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`, and the rest.

    Where the program has set no providers, those made here are set for the process, so that spans of its own and of
    other libraries go out, too. `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true` also sends content.

    Raises:
        ValueError: a variable has a value that cannot be used.
    """
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip() or "http/protobuf"
    if protocol != "http/protobuf":
        raise ValueError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}. Only http/protobuf is supported: set it to that."
        )
    named = Resource.create()
    # The SDK's name for a program that has none.
    if str(named.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        named = named.merge(Resource({SERVICE_NAME: "journeyman"}))
    # `close` does that within its time. At the exit, nobody would limit it.
    tracers = TracerProvider(resource=named, shutdown_on_exit=False)
    if (kind := _exporter("OTEL_TRACES_EXPORTER")) != "none":
        spans = OTLPSpanExporter() if kind == "otlp" else ConsoleSpanExporter()
        tracers.add_span_processor(BatchSpanProcessor(spans))
    readers: list[MetricReader] = []
    if (kind := _exporter("OTEL_METRICS_EXPORTER")) != "none":
        figures = OTLPMetricExporter() if kind == "otlp" else ConsoleMetricExporter()
        readers.append(PeriodicExportingMetricReader(figures))
    meters = MeterProvider(metric_readers=readers, resource=named, shutdown_on_exit=False)
    # They can be set once in a process, and a program's own come first.
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(tracers)
        metrics.set_meter_provider(meters)
    return Exporting(tracers, meters, content=os.environ.get(_CONTENT, "").strip().lower() in _TRUE)


def _exporter(variable: str) -> str:
    given = os.environ.get(variable, "").strip().lower() or "otlp"
    if given not in ("otlp", "console", "none"):
        raise ValueError(f"{variable} is {given!r}. Set it to otlp, console or none.")
    return given
