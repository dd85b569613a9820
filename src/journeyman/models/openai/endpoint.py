"""The services with an OpenAI-style API: what each can do, how it is reached, and the limits of its models.

An `Endpoint` is data, and those of known services are rows of `services.json`. Every field can be replaced:
`dataclasses.replace(VLLM, tools=False)`, also within one: `media=replace(VLLM.media, images=False)`. What is said of
services and models is what their documentation gave in November 2026; what Chat Completions refuse is from the API's
own error texts (GitHub: openai/openai-openapi#541, BerriAI/litellm#34569).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from pydantic import JsonValue
from pydantic_core import from_json

from journeyman.content.media import LARGEST_BYTES, PICTURES, MediaLimit, MediaSupport
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list
from journeyman.hosted.tools import HostedToolSupport
from journeyman.machine.files import read_text
from journeyman.model import ThinkingLevel
from journeyman.models.requests import by_longest_prefix, known_models

KeyHeader: TypeAlias = Literal["authorization", "api-key"]
"""How the key is sent: as a bearer token, or as it is in the header `api-key`."""
EffortField: TypeAlias = Literal["reasoning_effort", "reasoning"]
"""In which form the service takes the effort of reasoning."""
Server: TypeAlias = Literal["llama.cpp", "LM Studio", "Ollama", "vLLM"]
"""A server that tells the window of its models; each in its own way."""
UsageRequest: TypeAlias = Literal["none", "stream", "cost"]
"""How Chat Completions are asked what an answer used: not at all; by `stream_options.include_usage` in a stream; or by
`usage.include` as well, after which they also tell the cost in US dollars."""

SOUNDS: Final = {"audio/wav": "wav", "audio/mpeg": "mp3"}
"""The sounds that Chat Completions take, and their names for them."""
_REQUEST_BYTES: Final = 50_000_000


@lazy_dataclass(frozen=True, kw_only=True)
class InputMedia:
    """The files that users may send. A text in place of any other says that a file is missing; plain text can always
    be sent."""

    images: bool = True
    """Whether pictures are taken."""
    image_urls: bool = True
    """Whether the service fetches pictures by itself."""
    documents: bool = False
    """Whether PDF files are taken."""
    document_urls: bool = False
    """Whether Chat Completions fetch documents by themselves."""
    sounds: tuple[str, ...] = ()
    """A model takes sounds (WAV, MP3) over Chat Completions if its name holds one of these; `""` is in every name."""


@lazy_dataclass(frozen=True, kw_only=True)
class Reasoning:
    """The way to ask for reasoning, and how it comes and goes back in Chat Completions."""

    message_field: str = "reasoning_content"
    """The field of a message that holds the reasoning. `reasoning` and `reasoning_content` are read wherever they come;
    this one is sent."""
    is_echoed: bool = False
    """Whether the model's reasoning is taken back in `message_field`."""
    is_needed_with_calls: bool = False
    """Whether `message_field` is wanted in each message with calls, even if it is empty."""
    has_details: bool = False
    """Whether reasoning also comes as `reasoning_details`, which are sent back instead of its text."""
    effort_field: EffortField | None = None
    """How an effort is asked for: `reasoning_effort`, or `reasoning: {"effort": ...}`. None: not at all."""
    efforts: tuple[str, ...] | None = None
    """The efforts that every model takes, the least first, in the service's words; None: see `look_up_model`."""
    off: Mapping[str, JsonValue] | None = field(default=None, hash=False)
    """The fields that switch reasoning off. None: the effort `none`."""
    takes_budget: bool = False
    """Whether a budget in tokens is taken, as `reasoning: {"max_tokens": ...}`."""


@lazy_dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One service. The defaults describe a plain compatible server that needs no key."""

    provider: str
    """The service's short name: the prefix of its models' names, and whose reasoning an answer holds."""

    base_url: str | None = None
    """The address before the paths. None: it must be given, or stand in `base_url_variable`."""
    base_url_variable: str | None = None
    """The environment variable that holds the address."""
    key_variable: str | None = None
    """The environment variable that holds the key."""
    needs_key: bool = False
    """True: without a key, no request is made."""
    key_header: KeyHeader = "authorization"
    """How the key is sent. `authorization`: as a bearer token; `api-key`: as it is, in a header of that name."""
    chat_path: str = "/chat/completions"
    """The path of Chat Completions; `{model}` stands for the model's name."""
    responses_path: str = "/responses"
    """The path of Responses; `{model}` stands for the model's name."""

    is_openai: bool = False
    """Whether it has all of OpenAI's own API: tools that the service runs, refusals that are taken back as such,
    `store`, which is sent as false, and 50 MB for a request."""
    tools: bool = True
    """False: a request with tools fails before it is sent."""
    parallel_tool_calls: bool | None = None
    """Sent as `parallel_tool_calls`; None: not sent, and the service decides. False asks for one call at a time."""
    forces_calls: bool = True
    """Whether the model can be told that it must call a tool. If not, `tool_choice="any"` fails before it is sent."""
    strict: bool = False
    """Whether the service enforces the schemas of tools that are marked `strict`."""
    native_output: bool = True
    """Whether the service makes a model answer with JSON of a schema."""
    media: InputMedia = InputMedia()
    """The files that users may send."""
    reasoning: Reasoning = Reasoning()
    """How the model is asked to reason, and what becomes of it."""

    usage: UsageRequest = "stream"
    """How Chat Completions are asked what an answer used."""
    field_names: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """The names that Chat Completions have for `max_tokens`, `temperature`, `top_p`, `seed` or `stop`, where they are
    others. An empty name: the service takes no such field, and a request that needs it fails before it is sent."""
    id_characters: tuple[int, int] | None = None
    """The least and the most characters that the id of a call has in Chat Completions; None: any. Where both are the
    same, they must be letters and digits."""
    reply_after_results: bool = False
    """Whether Chat Completions want an answer of the model between results and what the user says after them."""
    cache_marks: tuple[str, ...] = ()
    """In Chat Completions, models whose names begin like this take marks for the prompt cache (`cache_control`). All
    others cache by themselves."""

    max_output_tokens: int | None = None
    """The longest answer of every model, in tokens; None: see `look_up_model`."""
    context_window: int | None = None
    """The most tokens in and out of every model; None: see `look_up_model`, and `server`."""
    server: Server | None = None
    """Which server it is, if it is one that tells the window of a model: it is asked when a run begins."""


@cache
def _read_services() -> Mapping[str, Mapping[str, Any]]:
    return from_json(read_text("journeyman.models.openai", "services.json"))


def _frozen(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(each) if is_list(each) else each for name, each in facts.items()}


def _preset(provider: str) -> Endpoint:
    facts: dict[str, Any] = {"media": {}, "reasoning": {}, **_read_services()[provider]}
    media, reasoning = InputMedia(**_frozen(facts.pop("media"))), Reasoning(**_frozen(facts.pop("reasoning")))
    return Endpoint(provider=provider, media=media, reasoning=reasoning, **_frozen(facts))


OPENAI: Final = _preset("openai")
"""OpenAI's own service."""
AZURE: Final = _preset("azure")
"""OpenAI's models on Azure; the address is the resource's own."""
OPENROUTER: Final = _preset("openrouter")
"""OpenRouter, a gateway to many providers, which tells what an answer cost."""
OLLAMA: Final = _preset("ollama")
"""An Ollama server, by default on this machine."""
VLLM: Final = _preset("vllm")
"""A vLLM server, by default on this machine."""
LLAMA_CPP: Final = _preset("llama-cpp")
"""A llama.cpp server, by default on this machine."""
LM_STUDIO: Final = _preset("lm-studio")
"""LM Studio's server, by default on this machine."""


ChatTools: TypeAlias = Literal["yes", "without reasoning", "no"]


@lazy_dataclass(frozen=True)
class OpenAIModelFacts:
    """The limits and abilities of one of OpenAI's models."""

    max_output_tokens: int
    context_window: int | None
    efforts: tuple[str, ...] = ()
    """What its effort for reasoning can be, the least first; empty when it takes none."""
    chat_tools: ChatTools = "yes"
    """Whether it has tools over Chat Completions. `without reasoning`: with the effort `none` only."""
    samples_while_reasoning: bool = False
    """Whether it takes `temperature` and `top_p` also while it reasons."""

    def takes_sampling(self, thinking: ThinkingLevel | int | None) -> bool:
        """Tell whether it takes `temperature` and `top_p`; one that may reason by itself, or not, is asked."""
        reasons = "none" not in self.efforts or thinking not in (None, "off")
        return not self.efforts or self.samples_while_reasoning or not reasons


@cache
def look_up_model(name: str) -> OpenAIModelFacts:
    """Return the limits and abilities of a model; of an unknown one only 8,192 tokens of output are taken for
    granted."""
    # The longest prefix that fits, after the vendor's name and a slash, which gateways put before it.
    known = by_longest_prefix(known_models("journeyman.models.openai"), name.rpartition("/")[2].removeprefix("ft:"))
    return OpenAIModelFacts(**_frozen(known))


_OLD: Final = ("gpt-3", "gpt-4-", "gpt-4o-2024-05-13", "o1-mini", "o1-preview")


def hears(endpoint: Endpoint, name: str) -> bool:
    """Tell whether a model takes sounds over Chat Completions."""
    return any(held in name for held in endpoint.media.sounds)


def media_of(endpoint: Endpoint, name: str, *, is_chat: bool) -> MediaSupport:
    """Return which files a model takes over Chat Completions, or over Responses; OpenAI's take 50 MB at once."""
    taken, most = endpoint.media, _REQUEST_BYTES * 3 // 4 if endpoint.is_openai else LARGEST_BYTES
    papers = frozenset({"text/", *(("application/pdf",) if taken.documents else ())})
    by_url = taken.documents and (taken.document_urls or not is_chat)
    return MediaSupport(
        image=MediaLimit(PICTURES, most, by_url=taken.image_urls) if taken.images else None,
        document=MediaLimit(papers, most, by_url=by_url),
        audio=MediaLimit(frozenset(SOUNDS), most) if is_chat and hears(endpoint, name) else None,
        largest_request_bytes=_REQUEST_BYTES if endpoint.is_openai else None,
    )


def hosting_of(endpoint: Endpoint, name: str, *, is_chat: bool) -> HostedToolSupport:
    """Return which tools the service runs for a model; over Chat Completions only search models have one."""
    if not endpoint.is_openai or (is_chat and "-search" not in name):
        return HostedToolSupport()
    if is_chat:
        return HostedToolSupport(web_search=frozenset({"location", "context_size"}))
    return HostedToolSupport(
        web_search=frozenset({"max_uses", "allowed_domains", "location", "context_size"}),
        code_execution=frozenset(),
        file_search=frozenset({"max_results"}),
    )


def answers_natively(endpoint: Endpoint, name: str) -> bool:
    """Tell whether a model can be made to answer with JSON of a schema: OpenAI's from GPT-4o on."""
    model = name.rpartition("/")[2].removeprefix("ft:")
    return endpoint.native_output and model != "gpt-4" and not model.startswith(_OLD)


#
# None of these records was tried on its service. A record says what the service's documentation gave in November 2026
# or, where that says nothing, what the issues and the code of other clients tell: `docs/providers.md` has the sources.
# For what a record does not say, the service is treated like any compatible server.

MISTRAL: Final = _preset("mistral")
"""Mistral's own service. It refuses fields that it does not know, and to be asked for the usage, which it tells anyway;
reasoning comes as parts of the content."""
GROQ: Final = _preset("groq")
"""Groq. Which efforts are taken depends on the model: `gpt-oss` has all but `none`, Qwen only that."""
DEEPSEEK: Final = _preset("deepseek")
"""DeepSeek's own service. It reasons unless it is told not to, and wants its reasoning back with each call."""
XAI: Final = _preset("xai")
"""xAI. Which efforts are taken depends on the model. Its count of output tokens leaves out those of reasoning."""
TOGETHER: Final = _preset("together")
"""Together AI. A stream tells its usage without being asked; some models stop with `eos`."""
FIREWORKS: Final = _preset("fireworks")
"""Fireworks AI. A stream tells its usage without being asked; models that reason between calls read it again."""
CEREBRAS: Final = _preset("cerebras")
"""Cerebras. A stream tells its usage without being asked; which efforts are taken depends on the model."""
HUGGINGFACE: Final = _preset("huggingface")
"""Hugging Face's router to many providers, which differ: `MODEL:PROVIDER` chooses one."""
COHERE: Final = _preset("cohere")
"""Cohere's compatible endpoint, which refuses to be asked for the usage; whether its streams tell it is not
documented."""
PERPLEXITY: Final = _preset("perplexity")
"""Perplexity, over Responses: it ended its Chat Completions on 27 September 2026."""

OTHERS: Final = (MISTRAL, GROQ, DEEPSEEK, XAI, TOGETHER, FIREWORKS, CEREBRAS, HUGGINGFACE, COHERE, PERPLEXITY)
