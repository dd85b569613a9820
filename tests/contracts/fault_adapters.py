"""The adapters that every fault is tried on: how a model is made, and how its provider writes.

A new adapter is one more entry of `ADAPTERS`, and one more `Wire` for each form of answer that it reads.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module

from journeyman.models.transport import Timeouts
from tests.contracts import fault_wires as wires
from tests.contracts import makers
from tests.contracts.faults import Fault, unknown
from tests.contracts.makers import PLAIN_GPT, Maker

import_module("pydantic_ai.models.openai")  # takes long: here, and not within some test's time


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter, with one form of answers."""

    name: str
    wire: wires.Wire
    model: Maker
    differently: Callable[[Fault], Fault | None] = lambda fault: fault
    """Returns how this adapter tells a fault; None if it is none for it."""

    def meets(self, fault: Fault) -> Fault | None:
        """Return the fault as this adapter must tell it; None if it cannot meet it."""
        if not (self.wire.is_stream or fault.is_within):
            return None  # without an answer its form does not matter, and another row has it
        return self.differently(fault)


def _by_a_client(fault: Fault) -> Fault | None:
    """The SDK's HTTP client has one class for a service that hangs up and for one that does not speak HTTP, loses the
    status of a refusal whose body breaks off, and reads any amount of data."""
    match fault.name:
        case "another protocol" | "an enormous header":
            return replace(fault, kind="network")
        case "500 with a body that breaks off":
            return replace(fault, kind="network", status=None, used=unknown)
        case "an enormous line" | "a page with the label of an answer":
            return None  # it goes by the label, and finds no event in the page
        case _:
            return fault


def _with_a_token(fault: Fault) -> Fault | None:
    """A token that is not taken is asked for anew: what then happens is in `test_google.py`."""
    return None if fault.status == 401 else fault


def _over_the_bridge(fault: Fault) -> Fault | None:
    """pydantic-ai tells no status but that of a refusal, has one class for all that it cannot read, and waits for no
    time less than none."""
    match fault.name:
        case "an empty body":
            return replace(fault, kind="unknown", status=None)
        case "a document of something else":
            return None
        case "an overload reported within":
            return replace(fault, status=500)
        case "307 with a redirect":
            return replace(fault, status=None, used=unknown)
        case "429 with a negative wait":
            return replace(fault, wait_s=None)
        case _:
            told = _by_a_client(fault)
            return replace(told, status=None) if told is not None and told.is_within else told


_CLIENT = partial(makers.client, timeouts=Timeouts())
_OPENAI = partial(makers.responses, name=PLAIN_GPT)

ADAPTERS = (
    Adapter("anthropic", wires.ANTHROPIC_EVENTS, makers.anthropic),
    Adapter("anthropic-document", wires.ANTHROPIC_DOCUMENT, makers.anthropic),
    Adapter("anthropic-client", wires.ANTHROPIC_EVENTS, _CLIENT, _by_a_client),
    Adapter("anthropic-client-document", wires.ANTHROPIC_DOCUMENT, _CLIENT, _by_a_client),
    Adapter("google", wires.GEMINI_EVENTS, makers.google),
    Adapter("google-document", wires.GEMINI_DOCUMENT, makers.google),
    Adapter("vertex-google", wires.GEMINI_EVENTS, makers.vertex, _with_a_token),
    Adapter("openai-chat", wires.CHAT_EVENTS, makers.chat),
    Adapter("openai-chat-document", wires.CHAT_DOCUMENT, makers.chat),
    Adapter("bridge", wires.BRIDGED_CHAT_EVENTS, partial(makers.bridged, timeouts=Timeouts()), _over_the_bridge),
    Adapter("openai-responses", wires.RESPONSES_EVENTS, _OPENAI),
    Adapter("openai-responses-document", wires.RESPONSES_DOCUMENT, _OPENAI),
)
