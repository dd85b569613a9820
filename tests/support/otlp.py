"""A collector for OpenTelemetry over HTTP: it takes traces and metrics as protobuf, and keeps what they say."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import TypeAlias

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

Value: TypeAlias = "str | bool | int | float | tuple[Value, ...]"
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A span as it arrived."""

    name: str
    id: str
    trace: str
    parent: str
    """The id of the span above; empty for none."""
    kind: int
    began_ns: int
    status: int
    """0 for nothing said, 2 for an error."""
    message: str
    attributes: Mapping[str, Value]
    links: tuple[str, ...]
    """The ids of the spans that it is linked with."""
    events: tuple[tuple[str, Mapping[str, Value]], ...]
    scope: str
    """The name and the version of what has made it."""


@dataclass(slots=True, eq=False)
class Collector:
    """What came, and where it is taken."""

    url: str = ""
    spans: list[Seen] = field(default_factory=list[Seen])
    metrics: dict[str, list[Mapping[str, Value]]] = field(default_factory=dict[str, "list[Mapping[str, Value]]"])
    """The attributes of each point, by the name of its instrument."""
    resources: list[Mapping[str, Value]] = field(default_factory=list["Mapping[str, Value]"])
    bodies: list[bytes] = field(default_factory=list[bytes])
    asked: Event = field(default_factory=Event)
    """Set once something came."""
    answers: bool = True
    closing: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def tree(self) -> list[str]:
        """Return the names of all spans as they arrived, indented below the one above, in the order of beginning."""

        def below(parent: str, depth: int) -> Iterator[str]:
            for span in sorted(self.spans, key=lambda span: span.began_ns):
                if span.parent == parent or (depth == 0 and span.parent not in known):
                    yield "  " * depth + span.name
                    yield from below(span.id, depth + 1)

        known = {span.id for span in self.spans}
        return [*below("", 0)]

    def named(self, name: str) -> list[Seen]:
        """Return the spans of a name, in the order of beginning."""
        return sorted([span for span in self.spans if span.name == name], key=lambda span: span.began_ns)

    def one(self, name: str) -> Seen:
        """Return the only span of a name."""
        (span,) = self.named(name)
        return span

    def take(self, path: str, body: bytes) -> None:
        """Read what came."""
        self.bodies.append(body)
        if path == "/v1/traces":
            self._take_spans(ExportTraceServiceRequest.FromString(body))
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        data = metric.histogram if metric.HasField("histogram") else metric.sum
                        points = [_plain(point.attributes) for point in data.data_points]
                        self.metrics.setdefault(metric.name, []).extend(points)
        else:
            raise AssertionError(f"Nothing is taken at {path}.")

    def _take_spans(self, request: ExportTraceServiceRequest) -> None:
        for resource in request.resource_spans:
            self.resources.append(_plain(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += [
                    Seen(
                        name=span.name,
                        id=span.span_id.hex(),
                        trace=span.trace_id.hex(),
                        parent=span.parent_span_id.hex(),
                        kind=span.kind,
                        began_ns=span.start_time_unix_nano,
                        status=span.status.code,
                        message=span.status.message,
                        attributes=_plain(span.attributes),
                        links=tuple([link.span_id.hex() for link in span.links]),
                        events=tuple([(event.name, _plain(event.attributes)) for event in span.events]),
                        scope=f"{scope.scope.name} {scope.scope.version}".strip(),
                    )
                    for span in scope.spans
                ]


@contextmanager
def collecting(*, answers: bool = True) -> Generator[Collector]:
    """Take what is sent while the block runs; with `answers=False` never answer."""
    collector = Collector(answers=answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked.set()
            if not collector.answers:
                collector.closing.wait(_PATIENCE_S)
                return
            with collector.lock:
                collector.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        collector.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _plain(attributes: Iterable[KeyValue]) -> dict[str, Value]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: AnyValue) -> Value:
    match value.WhichOneof("value"):
        case "array_value":
            return tuple([_value(each) for each in value.array_value.values])
        case str(kind):
            found: Value = getattr(value, kind)
            return found
        case _:
            return ""
