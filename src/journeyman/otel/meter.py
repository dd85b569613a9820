"""What is counted and measured of runs, and of durable runs beside what happens in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry import metrics

from journeyman.events import Event, RunClaimed, RunFenced, RunHalted, RunQueued, RunSuspended, RunWoken, StepStored
from journeyman.otel import names


class Meter:
    """Counts and measures."""

    def __init__(self, meter: metrics.Meter) -> None:
        self.duration: Final = meter.create_histogram(
            names.DURATION,
            unit="s",
            description="How long a model call, a call of a tool, or a run took.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self.first_chunk: Final = meter.create_histogram(
            names.TIME_TO_FIRST_CHUNK,
            unit="s",
            description="How long a model took until its answer began.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self.tokens: Final = meter.create_histogram(
            names.TOKEN_USAGE,
            unit="{token}",
            description="What model calls used.",
            explicit_bucket_boundaries_advisory=names.TOKEN_BUCKETS,
        )
        self._claim_s: Final = meter.create_histogram(
            names.CLAIM_DURATION, unit="s", description="How long it took to take a durable run."
        )
        self._step_s: Final = meter.create_histogram(
            names.STEP_DURATION, unit="s", description="How long the store took to write a step."
        )
        self._step_bytes: Final = meter.create_histogram(
            names.STEP_SIZE, unit="By", description="How large steps are, as they are stored."
        )
        self._counters: Final[Mapping[type, Callable[..., None]]] = {
            kind: meter.create_counter(name, unit="{run}", description=description).add
            for kind, (name, description) in _COUNTED.items()
        }
        self._takeovers: Final = meter.create_counter(
            names.TAKEOVERS, unit="{run}", description="Durable runs that were taken from a process that died."
        )

    def hear(self, event: Event) -> None:
        """Count what happens to a durable run."""
        facts: dict[str, Any] = {names.AGENT_NAME: event.path[0]} if event.path else {}
        if (add := self._counters.get(type(event))) is not None:
            add(1, facts)
        match event:
            case StepStored():
                self._step_s.record(event.duration_s, facts)
                self._step_bytes.record(event.bytes, facts)
            case RunClaimed():
                self._claim_s.record(event.duration_s, facts)
                if event.taken_from is not None:
                    self._takeovers.add(1, facts)
            case _:
                pass


_COUNTED: Final[Mapping[type, tuple[str, str]]] = {
    RunQueued: (names.QUEUED, "Durable runs that were stored for a worker."),
    RunClaimed: (names.CLAIMS, "How often durable runs were taken by a process."),
    RunWoken: (names.WOKEN, "Durable runs that waited and went on."),
    RunSuspended: (names.SUSPENDED, "Durable runs that left their process because they only wait."),
    RunFenced: (names.FENCED, "Durable runs that somebody else drives now."),
    RunHalted: (names.BLOCKED, "Durable runs that cannot go on before a person has looked at them."),
}
