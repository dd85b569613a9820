"""A connection that was used before, and what servers, proxies and load balancers do with it between two requests.

One table over all wires that go over our transport. A request whose connection was used before, and which failed before
the first byte of its answer, goes out once more on a fresh one, and nobody is told.
"""

import asyncio
import socket
import ssl
import struct
from dataclasses import dataclass
from functools import partial

import pytest

from journeyman import Agent, Limits, ModelSettings, Success, Usage, run
from journeyman.events import ModelRetried
from tests.contracts.fault_adapters import ADAPTERS, Adapter
from tests.contracts.faults import CERTIFICATES
from tests.contracts.patient_clock import on_patient_clock
from tests.models.raw_server import Answer, RawServer, closing_after, http, resetting_after
from tests.play import Recorder

OTHERS = ("anthropic-client", "bridge")
"""What goes over the HTTP client of another package."""
OURS = [adapter for adapter in ADAPTERS if not adapter.name.startswith(OTHERS)]
AT_ONCE, A_MINUTE = 0, 60


def well(adapter: Adapter, **headers: str) -> bytes:
    return http(adapter.wire.whole, content_type=adapter.wire.content_type, headers=headers)


def after(seconds: float, act: Answer) -> Answer:
    """Let the request wait for so long, and then do something with its connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        assert not isinstance(act, bytes)
        await act(reader, writer)

    return answer


HEAD = b"HTTP/1.1 200 Fine\r\nContent-Type: text/event-stream\r\n"
REFUSED = b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
WHILE_ASKED: dict[str, tuple[Answer, bool]] = {
    "closes after reading the request": (closing_after(b""), True),
    "resets after reading the request": (resetting_after(b""), True),
    "closes some seconds after reading the request": (after(9, closing_after(b"")), True),
    # It had the request all the time, and its tokens may be on the bill.
    "gives the request up after a minute": (after(A_MINUTE, closing_after(b"")), False),
    "resets the request after a minute": (after(A_MINUTE, resetting_after(b"")), False),
    "closes after the first byte": (closing_after(b"H"), False),
    "resets after the first byte": (resetting_after(b"H"), False),
    "closes after half of the head": (closing_after(HEAD), False),
    "resets after half of the head": (resetting_after(HEAD), False),
    "closes after an interim answer": (closing_after(b"HTTP/1.1 103 Early Hints\r\n\r\n"), False),
    "closes after the head": (closing_after(HEAD + b"Content-Length: 99\r\n\r\n"), False),
    "says that the request came too late": (closing_after(REFUSED), False),  # and tells that nothing was used
    "speaks another protocol": (closing_after(b"SSH-2.0-OpenSSH_9.9\r\n"), False),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What two runs and their server told."""

    usage: Usage
    """What was used; of the second run."""
    retried: list[str]
    """The kinds of the failures that were told."""
    n_requests: int
    n_connections: int


async def two_runs(adapter: Adapter, *answers: Answer, rounds: int = 0) -> Told:
    """Run an agent twice at a server; between, let the event loop look around so often."""
    recorder = Recorder()
    async with RawServer(*answers) as server, adapter.model(server.url) as model:
        agent = Agent(name="tester", model=model, settings=ModelSettings(max_tokens=9))
        (await run(agent, "Hello.", on_event=recorder)).unwrap()
        for _ in range(rounds):
            await asyncio.sleep(0)
        result = await run(agent, "Hello.", on_event=recorder)
        retried = [event.kind for event in recorder.events if isinstance(event, ModelRetried)]
        usage, n_requests = result.metadata.usage or Usage(), len(server.requests)
        return Told(usage=usage, retried=retried, n_requests=n_requests, n_connections=server.n_connections)


@pytest.mark.share(one_in=4)
@pytest.mark.parametrize("adapter", OURS, ids=[adapter.name for adapter in OURS])
@pytest.mark.parametrize("case", WHILE_ASKED)
def test_a_request_is_repeated_in_silence_only_before_the_first_byte(adapter: Adapter, case: str) -> None:
    act, is_silent = WHILE_ASKED[case]
    told = on_patient_clock(partial(two_runs, adapter, well(adapter), act, well(adapter)))
    assert told.n_requests == (2 if case == "speaks another protocol" else 3)
    if is_silent:
        assert (told.retried, told.usage, told.n_connections) == ([], adapter.wire.used, 2)
    else:
        assert told.usage.exact == (case == "says that the request came too late")
        assert len(told.retried) == told.n_requests - 2


def test_a_fresh_connection_is_never_repeated_in_silence() -> None:
    lost = closing_after(b"")
    for adapter in OURS:
        told = on_patient_clock(partial(two_runs, adapter, lost, well(adapter)))
        assert (told.retried, told.n_requests) == (["network"], 3)


def test_the_repetition_goes_over_a_fresh_connection_which_is_not_repeated() -> None:
    lost = closing_after(b"")
    for adapter in OURS:
        told = on_patient_clock(partial(two_runs, adapter, well(adapter), lost, lost, well(adapter)))
        assert (told.retried, told.n_requests, told.n_connections) == (["network"], 4, 3)
        assert told.usage == Usage(requests=1, exact=False) + adapter.wire.used


async def test_the_idle_connections_beside_it_are_not_tried_one_after_the_other() -> None:
    """A load balancer that leaves closes all that it has."""
    adapter, n = OURS[0], 4
    everybody = asyncio.Barrier(n)

    async def together(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await everybody.wait()
        writer.write(well(adapter))
        await reader.readuntil(b"\r\n\r\n")

    async with RawServer(*[together] * n, well(adapter)) as server, adapter.model(server.url) as model:
        agent = Agent(name="tester", model=model, limits=Limits(request_retries=0))
        await asyncio.gather(*[run(agent, "Hello.") for _ in range(n)])
        result = await run(agent, "Hello.")
        assert isinstance(result, Success), result
        assert (server.n_connections, result.metadata.usage) == (n + 1, adapter.wire.used)


def closing(data: bytes, *, says: bytes = b"", rounds: int, how: str) -> Answer:
    """Answer, and do something with the connection some rounds of the event loop later."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        for _ in range(rounds):
            await asyncio.sleep(0)
        if says:
            writer.write(says)
        if how == "resets":
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        elif how == "closes its half":
            writer.write_eof()
            await reader.read()
        elif how == "stays":
            await reader.read()

    return answer


@pytest.mark.parametrize(
    ("how", "says"),
    [("closes", b""), ("resets", b""), ("closes its half", b""), ("closes", REFUSED), ("stays", REFUSED)],
)
def test_what_a_server_does_with_an_idle_connection_is_not_noticed(how: str, says: bytes) -> None:
    """Sooner or later, from the last byte of an answer up to the first of the next request.

    Words that nobody asked for must have come before that one: later they are its answer.
    """
    for number, adapter in enumerate(OURS):
        for rounds in range(number % 3, 12, 3):
            n = 40 if says else 3
            act = closing(well(adapter), says=says, rounds=rounds, how=how)
            told = on_patient_clock(
                lambda adapter=adapter, act=act, n=n: two_runs(adapter, act, well(adapter), rounds=n)
            )
            assert (told.retried, told.usage) == ([], adapter.wire.used), (adapter.name, rounds)


async def test_a_connection_is_not_used_again_where_its_server_said_so() -> None:
    adapter = OURS[0]
    told = await two_runs(adapter, well(adapter, Connection="close"), well(adapter))
    assert (told.retried, told.n_requests, told.n_connections) == ([], 2, 2)


@pytest.mark.parametrize("tls", [False, True])
async def test_300_follow_ups_at_a_server_that_closes_after_each_answer_show_nothing(
    tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(CERTIFICATES / "here.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATES / "authority.pem"))
    adapter, n = OURS[0], 40 if tls else 300
    acts = [closing(well(adapter), rounds=number % 16, how="closes") for number in range(2 * n)]
    async with RawServer(*acts, tls=shown if tls else None) as server, adapter.model(server.url) as model:
        agent = Agent(name="tester", model=model, limits=Limits(request_retries=0))
        results = [await run(agent, "Hello.") for _ in range(n)]
        assert [each for each in results if not isinstance(each, Success)] == []
        assert {each.metadata.usage for each in results} == {adapter.wire.used}
        assert len(server.requests) >= n


async def test_a_body_of_megabytes_is_sent_again_whole() -> None:
    adapter = OURS[0]
    text = "fox " * 1_000_000

    async with RawServer(well(adapter), closing_after(b""), well(adapter)) as server:
        async with adapter.model(server.url) as model:
            agent = Agent(name="tester", model=model, limits=Limits(request_retries=0))
            (await run(agent, "Hello.")).unwrap()
            (await run(agent, text)).unwrap()
        assert server.requests[1] == server.requests[2]
        assert text.encode() in server.requests[2]
