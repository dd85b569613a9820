"""Telemetry of a program's runs: what `Runtime(telemetry=…)` takes, and the metrics that it counts."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise ImportError("The package opentelemetry-api is not installed: pip install 'journeyman[otel]'") from error

from journeyman.definition.problems import explain_arguments
from journeyman.events import Event
from journeyman.journal import TapeKind, Telemetry
from journeyman.otel import names
from journeyman.otel.content import Shapes
from journeyman.otel.meter import Meter
from journeyman.otel.spans import Instruments, SpanTape, context_with_links
from journeyman.tools.redaction import Redactor, Secret

_MOST_BYTES: Final = 32_768


@explain_arguments
class OpenTelemetry:
    """The telemetry that reports to OpenTelemetry what runs do: `Runtime(telemetry=OpenTelemetry())`.

    It makes spans and metrics with the providers that the program has set up, and sends nothing itself. No failure here
    can break a run.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        *,
        content: bool = False,
        max_content_bytes: int = _MOST_BYTES,
        redact: Sequence[Secret] = (),
    ) -> None:
        """Make spans and metrics with these providers; None: with those that are set for the process.

        Args:
            tracer_provider: Makes the tracer.
            meter_provider: Makes the meter.
            content: True: the spans also hold what models and tools were told and what they answered, without texts
                that look like a secret.
            max_content_bytes: About how many bytes each attribute with content may have.
            redact: What to take out in addition, as for a cassette.

        Raises:
            ValueError: `max_content_bytes` is less than 256.
        """
        if max_content_bytes < 256:
            raise ValueError(f"max_content_bytes is {max_content_bytes}. Give at least 256, or leave content off.")
        redactor = Redactor(redact)
        self._instruments: Final = Instruments(
            tracer=trace.get_tracer(
                names.SCOPE, version("journeyman"), tracer_provider=tracer_provider, attributes=names.SCOPE_FACTS
            ),
            meter=Meter(
                metrics.get_meter(
                    names.SCOPE, version("journeyman"), meter_provider=meter_provider, attributes=names.SCOPE_FACTS
                )
            ),
            shapes=Shapes(redactor, max_bytes=max_content_bytes) if content else None,
            redactor=redactor,
        )

    def begin(
        self, kind: TapeKind, agent: str, *, id: str | None = None, traceparent: str = "", conversation: str = ""
    ) -> SpanTape:
        """Begin to tell of a run, with all runs in it; as a part of the trace of `traceparent` and of a stored
        `conversation`, if there is one."""
        remote = propagate.extract({"traceparent": traceparent}) if traceparent else None
        return SpanTape(self._instruments, kind, id=id, remote=remote, conversation=conversation)

    def queued(self, agent: str) -> str:
        """Report that a run of the agent was stored, so that this process or another one does it. Return the W3C
        `traceparent` to whose trace all lives of the run belong."""
        here, links = context_with_links()
        span = self._instruments.start_span(
            f"queue {agent}", here, {names.AGENT_NAME: agent}, kind=trace.SpanKind.PRODUCER, links=links
        )
        # Over at once: the run itself has its own spans, perhaps in other processes.
        span.end()
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        return carrier.get("traceparent", "")

    @contextmanager
    def within(self, traceparent: str) -> Generator[None]:
        """Make what begins in the block a part of the trace that a W3C `traceparent` names; of no trace, if it is not
        valid."""
        token = context.attach(propagate.extract({"traceparent": traceparent}))
        try:
            yield
        finally:
            context.detach(token)

    def hear(self, event: Event) -> None:
        """Count what happens to durable runs: `Durable(…, on_event=telemetry.hear)`. Other events are ignored."""
        self._instruments.meter.hear(event)


if TYPE_CHECKING:
    _telemetry: type[Telemetry] = OpenTelemetry
