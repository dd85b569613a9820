"""Counts and measures runs as metrics, and how processes take durable runs and store their steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opentelemetry import metrics
from opentelemetry.metrics import Histogram

from journeyman.events import (
    Event,
    RunClaimed,
    RunClaimLost,
    RunNeedsAttention,
    RunQueued,
    RunSuspended,
    RunWoken,
    StepStored,
)
from journeyman.otel import names


class Meter:
    """The counters and histograms of runs, fed by events."""

    def __init__(self, meter: metrics.Meter) -> None:
        def histogram(name: str, unit: str, description: str, buckets: Sequence[float] | None = None) -> Histogram:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)

        lasting, many = names.DURATION_BUCKETS, names.CALL_BUCKETS
        self._inference_s: Final = histogram(
            names.INFERENCE_DURATION, "s", "How long a request to a model took.", lasting
        )
        self.first_chunk: Final = histogram(
            names.TIME_TO_FIRST_CHUNK, "s", "How long a model took until its answer began.", lasting
        )
        self.tool_s: Final = histogram(names.TOOL_DURATION, "s", "How long a call of a tool took.", lasting)
        self._agent_s: Final = histogram(names.AGENT_DURATION, "s", "How long a run took.", names.AGENT_BUCKETS)
        self._requests: Final = histogram(
            names.INFERENCE_CALLS, "{inference_call}", "How many requests a run made itself.", many
        )
        self._calls: Final = histogram(names.TOOL_CALLS, "{tool_call}", "How many calls a run made itself.", many)
        self._tokens_of_one: Final = {
            attribute: histogram(name, "{token}", "How many tokens a request used.", names.TOKEN_BUCKETS)
            for attribute, name in names.TOKENS_OF_ONE.items()
        }
        self._tokens_of_all: Final = {
            attribute: meter.create_counter(name, unit="{token}", description="How many tokens all requests used.")
            for attribute, name in names.TOKENS_OF_ALL.items()
        }
        self._claim_s: Final = histogram(names.CLAIM_DURATION, "s", "How long it took to take a durable run.")
        self._step_s: Final = histogram(names.STEP_DURATION, "s", "How long the store took to write a step.")
        self._step_bytes: Final = histogram(names.STEP_SIZE, "By", "How large steps are, as they are stored.")
        self._counters: Final[Mapping[type, Callable[..., None]]] = {
            kind: meter.create_counter(name, unit="{run}", description=description).add
            for kind, (name, description) in _COUNTED.items()
        }
        self._takeovers: Final = meter.create_counter(
            names.TAKEOVERS, unit="{run}", description="Durable runs that were taken from a process that died."
        )

    def ask(self, seconds: float, tokens: Mapping[str, int], facts: Mapping[str, Any], error: str | None) -> None:
        """Count a request to a model: how long it took, and its tokens, by the attribute of its span. A request that
        failed has used none that anybody knows of."""
        self._inference_s.record(seconds, facts if error is None else {**facts, names.ERROR: error})
        for attribute, one in self._tokens_of_one.items():
            one.record(tokens.get(attribute, 0), facts)
        told = {**facts, names.MODALITY: names.UNKNOWN}
        for attribute, counter in self._tokens_of_all.items():
            if attribute in tokens or attribute in self._tokens_of_one:
                counter.add(tokens.get(attribute, 0), told)

    def invoke(self, seconds: float, agent: str, model: str, *, error: str | None, requests: int, calls: int) -> None:
        """Count a run: how long it took, and its own requests and calls."""
        whose = {names.AGENT_NAME: agent}
        facts = whose | ({names.REQUEST_MODEL: model} if model else {})
        self._agent_s.record(seconds, facts if error is None else {**facts, names.ERROR: error})
        self._requests.record(requests, whose)
        self._calls.record(calls, whose)

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
    RunClaimLost: (names.FENCED, "Durable runs that somebody else drives now."),
    RunNeedsAttention: (names.BLOCKED, "Durable runs that cannot go on before a person has looked at them."),
}
