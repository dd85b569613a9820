"""The services with an OpenAI-style API: what each can do, how it is reached, and the limits of its models.

An `Endpoint` is data: a preset for each known service, and every field of it can be replaced:
`dataclasses.replace(VLLM, tools=False)`. What is said of services and models is what their documentation gave in
November 2026; what Chat Completions refuse is from the API's own error texts (GitHub: openai/openai-openapi#541,
BerriAI/litellm#34569).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from journeyman.content.media import LARGEST_BYTES, PICTURES, MediaLimit, MediaSupport
from journeyman.data import lazy_dataclass
from journeyman.hosted.tools import HostedToolSupport
from journeyman.model import ThinkingLevel
from journeyman.models.requests import by_longest_prefix

KeyHeader: TypeAlias = Literal["authorization", "api-key"]
"""How the key is sent: as a bearer token, or as it is in the header `api-key`."""
EffortField: TypeAlias = Literal["reasoning_effort", "reasoning"]
"""In which form the service takes the effort of reasoning."""
Server: TypeAlias = Literal["llama.cpp", "LM Studio", "Ollama", "vLLM"]
"""A server that tells the window of its models; each in its own way."""

SOUNDS: Final = {"audio/wav": "wav", "audio/mpeg": "mp3"}
"""The sounds that Chat Completions take, and their names for them."""
SAMPLING: Final = {name: name for name in ("temperature", "top_p", "seed", "stop")}
"""The names of most services for how a model chooses its words."""
_REQUEST_BYTES: Final = 50_000_000


@lazy_dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One service. The defaults describe a plain compatible server that needs no key."""

    provider: str
    """The service's short name: the prefix of its models' names, and whose reasoning an answer holds."""

    # -- how it is reached
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
    query: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """The parameters that follow the path, such as `api-version`."""

    # -- what it can do
    tools: bool = True
    """False: a request with tools fails before it is sent."""
    parallel_tool_calls: bool | None = None
    """Sent as `parallel_tool_calls`; None: not sent, and the service decides. False asks for one call at a time."""
    strict: bool = False
    """Whether the service enforces the schemas of tools that are marked `strict`."""
    images: bool = True
    """Whether users may send pictures. If not, a text in its place says that a picture is missing."""
    image_urls: bool = True
    """Whether the service fetches pictures by itself."""
    documents: bool = False
    """Whether users may send PDF files. If not, a text in its place says that a file is missing. Plain text can always
    be sent."""
    document_urls: bool = False
    """Whether Chat Completions fetch documents by themselves."""
    sounds: tuple[str, ...] = ()
    """A model takes sounds (WAV and MP3) over Chat Completions if its name holds one of these; `""` is in every name.
    For other models a text says that a sound is missing."""
    native_output: bool = True
    """Whether the service makes a model answer with JSON of a schema."""
    hosts: bool = False
    """Whether the service runs tools by itself: over Responses, and by search models over Chat Completions."""
    refusals: bool = False
    """Whether Chat Completions take a refusal of the model back as a refusal. If not, it goes back as a text."""
    longest_id: int | None = None
    """The longest id of a call that Chat Completions take, in characters; None: any."""
    exact_id: int | None = None
    """How many letters and digits the id of a call must have in Chat Completions. None: see `longest_id`."""
    forces_calls: bool = True
    """Whether the model can be told that it must call a tool. If not, `tool_choice="any"` fails before it is sent."""
    reply_after_results: bool = False
    """Whether Chat Completions want an answer of the model between results and what the user says after them."""

    # -- how it is asked
    usage_in_stream: bool = True
    """Whether a stream tells its usage when asked to by `stream_options.include_usage`."""
    system_role: Literal["system", "developer"] = "system"
    """The role of the message with the system prompt, in Chat Completions."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """The name of the longest answer's field, in Chat Completions."""
    sampling: Mapping[str, str] = field(default_factory=lambda: SAMPLING, hash=False)
    """The names that Chat Completions have for `temperature`, `top_p`, `seed` and `stop` of the settings. What is not
    named fails before it is sent."""
    store: bool | None = None
    """Sent as `store`; None: not sent, and the service decides whether it keeps answers."""
    cache_marks: tuple[str, ...] = ()
    """In Chat Completions, models whose names begin like this take marks for the prompt cache (`cache_control`). All
    others cache by themselves."""
    tells_cost: bool = False
    """Whether Chat Completions are asked, by `usage.include`, what an answer cost, and tell it in US dollars."""

    # -- reasoning
    reasoning_field: str = "reasoning_content"
    """The field of a Chat Completions message that holds the reasoning. `reasoning` and `reasoning_content` are read
    wherever they come; this one is sent."""
    echoes_reasoning: bool = False
    """Whether Chat Completions take the model's reasoning back in `reasoning_field`."""
    reasoning_with_calls: bool = False
    """Whether Chat Completions want `reasoning_field` in each message with calls, even if it is empty."""
    reasoning_details: bool = False
    """Whether reasoning also comes as `reasoning_details`, which are sent back instead of its text."""
    effort_field: EffortField | None = None
    """How Chat Completions are asked for an effort: `reasoning_effort`, or `reasoning: {"effort": ...}`. None: not at
    all."""
    efforts: tuple[str, ...] | None = None
    """The efforts that every model takes, the least first, in the service's words; None: see `look_up_model`."""
    reasoning_off: Mapping[str, JsonValue] | None = field(default=None, hash=False)
    """The fields that switch reasoning off in Chat Completions. None: the effort `none`."""
    takes_budget: bool = False
    """Whether a budget in tokens is taken, as `reasoning: {"max_tokens": ...}`."""

    # -- limits
    max_output_tokens: int | None = None
    """The longest answer of every model, in tokens; None: see `look_up_model`."""
    context_window: int | None = None
    """The most tokens in and out of every model; None: see `look_up_model`, and `server`."""

    # -- a server of one's own
    server: Server | None = None
    """Which server it is, if it is one that tells the window of a model: it is asked when a run begins."""
    start: str = ""
    """How the server is started, as an error says it to somebody whose server does not run."""


OPENAI: Final = Endpoint(
    provider="openai",
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    needs_key=True,
    strict=True,
    documents=True,
    sounds=("audio",),
    hosts=True,
    refusals=True,
    longest_id=40,
    max_tokens_field="max_completion_tokens",
    store=False,
    effort_field="reasoning_effort",
)
"""OpenAI's own service."""
AZURE: Final = replace(
    OPENAI,
    provider="azure",
    base_url=None,
    base_url_variable="AZURE_OPENAI_ENDPOINT",
    key_variable="AZURE_OPENAI_API_KEY",
    key_header="api-key",
    chat_path="/openai/v1/chat/completions",
    responses_path="/openai/v1/responses",
)
"""OpenAI's models on Azure; the address is the resource's own."""
OPENROUTER: Final = Endpoint(
    provider="openrouter",
    base_url="https://openrouter.ai/api/v1",
    base_url_variable="OPENROUTER_BASE_URL",
    key_variable="OPENROUTER_API_KEY",
    needs_key=True,
    documents=True,
    document_urls=True,
    sounds=("",),
    cache_marks=("anthropic/", "~anthropic/"),
    tells_cost=True,
    reasoning_field="reasoning",
    echoes_reasoning=True,
    reasoning_details=True,
    effort_field="reasoning",
    efforts=("none", "minimal", "low", "medium", "high", "xhigh"),
    takes_budget=True,
)
"""OpenRouter, a gateway to many providers, which tells what an answer cost."""
OLLAMA: Final = Endpoint(
    provider="ollama",
    base_url="http://localhost:11434/v1",
    base_url_variable="OLLAMA_BASE_URL",
    key_variable="OLLAMA_API_KEY",
    reasoning_field="reasoning",
    echoes_reasoning=True,
    effort_field="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
    server="Ollama",
    start="ollama serve",
)
"""An Ollama server, by default on this machine."""
VLLM: Final = replace(
    OLLAMA,
    provider="vllm",
    base_url="http://localhost:8000/v1",
    base_url_variable="VLLM_BASE_URL",
    key_variable="VLLM_API_KEY",
    sounds=("",),
    server="vLLM",
    start="vllm serve MODEL",
)
"""A vLLM server, by default on this machine."""
LLAMA_CPP: Final = replace(
    OLLAMA,
    provider="llama-cpp",
    base_url="http://localhost:8080/v1",
    base_url_variable="LLAMA_CPP_BASE_URL",
    key_variable="LLAMA_CPP_API_KEY",
    reasoning_field="reasoning_content",
    sounds=("",),
    server="llama.cpp",
    start="llama-server -m MODEL.gguf",
)
"""A llama.cpp server, by default on this machine."""
LM_STUDIO: Final = Endpoint(
    provider="lm-studio",
    base_url="http://localhost:1234/v1",
    base_url_variable="LM_STUDIO_BASE_URL",
    key_variable="LM_STUDIO_API_KEY",
    image_urls=False,
    effort_field="reasoning_effort",
    efforts=("none", "low", "medium", "high"),
    server="LM Studio",
    start="lms server start",
)
"""LM Studio's server, by default on this machine."""


# -- models ------------------------------------------------------------------------------------------------------------

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


_THREE: Final = ("low", "medium", "high")
_FOUR: Final = (*_THREE, "xhigh")
_FIVE: Final = (*_FOUR, "max")
_LARGE: Final = 1_050_000

# The longest prefix that fits, after the vendor's name and a slash, which gateways put before it.
_KNOWN: Final[Mapping[str, OpenAIModelFacts]] = {
    "gpt-6": OpenAIModelFacts(128_000, _LARGE, _FIVE, "no"),
    "gpt-6-sol": OpenAIModelFacts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-6-luna": OpenAIModelFacts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-5.6": OpenAIModelFacts(128_000, _LARGE, ("none", *_FIVE), "without reasoning"),
    "gpt-5.5": OpenAIModelFacts(128_000, _LARGE, ("none", *_FOUR), "without reasoning"),
    "gpt-5.5-pro": OpenAIModelFacts(128_000, _LARGE, ("medium", "high", "xhigh")),
    "gpt-5.4": OpenAIModelFacts(128_000, _LARGE, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-mini": OpenAIModelFacts(128_000, 400_000, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-nano": OpenAIModelFacts(128_000, 400_000, ("none", *_FOUR), "without reasoning"),
    "gpt-5.4-pro": OpenAIModelFacts(128_000, _LARGE, ("medium", "high", "xhigh")),
    "gpt-5.3-codex": OpenAIModelFacts(128_000, 400_000, _FOUR),
    "gpt-5.3-codex-spark": OpenAIModelFacts(32_000, 128_000, _FOUR),
    "gpt-5.3-chat": OpenAIModelFacts(16_384, 128_000, ("medium",)),
    "gpt-5.2": OpenAIModelFacts(128_000, 400_000, ("none", *_FOUR)),
    "gpt-5.2-codex": OpenAIModelFacts(128_000, 400_000, _FOUR),
    "gpt-5.2-pro": OpenAIModelFacts(128_000, 400_000, ("medium", "high", "xhigh")),
    "gpt-5.2-chat": OpenAIModelFacts(16_384, 128_000, ("medium",)),
    "gpt-5.1": OpenAIModelFacts(128_000, 400_000, ("none", *_THREE)),
    "gpt-5.1-codex": OpenAIModelFacts(128_000, 400_000, _THREE),
    "gpt-5.1-codex-max": OpenAIModelFacts(128_000, 400_000, _FOUR),
    "gpt-5.1-chat": OpenAIModelFacts(16_384, 128_000, ("medium",)),
    "gpt-5": OpenAIModelFacts(128_000, 400_000, ("minimal", *_THREE)),
    "gpt-5-codex": OpenAIModelFacts(128_000, 400_000, _THREE),
    "gpt-5-pro": OpenAIModelFacts(272_000, 400_000, ("high",)),
    "gpt-5-chat": OpenAIModelFacts(16_384, 128_000),
    "gpt-oss-": OpenAIModelFacts(131_072, 131_072, _THREE, samples_while_reasoning=True),
    "o1": OpenAIModelFacts(100_000, 200_000, _THREE),
    "o3": OpenAIModelFacts(100_000, 200_000, _THREE),
    "o4-mini": OpenAIModelFacts(100_000, 200_000, _THREE),
    "gpt-4.1": OpenAIModelFacts(32_768, 1_047_576),
    "gpt-4o": OpenAIModelFacts(16_384, 128_000),
    "gpt-4o-2024-05-13": OpenAIModelFacts(4_096, 128_000),
    "gpt-4-turbo": OpenAIModelFacts(4_096, 128_000),
    "gpt-4": OpenAIModelFacts(8_192, 8_192),
    "gpt-3.5-turbo": OpenAIModelFacts(4_096, 16_385),
    "": OpenAIModelFacts(8_192, None, _THREE),
}


@cache
def look_up_model(name: str) -> OpenAIModelFacts:
    """Return the limits and abilities of a model; of an unknown one only 8,192 tokens of output are taken for
    granted."""
    return by_longest_prefix(_KNOWN, name.rpartition("/")[2].removeprefix("ft:"))


_OLD: Final = ("gpt-3", "gpt-4-", "gpt-4o-2024-05-13", "o1-mini", "o1-preview")


def hears(endpoint: Endpoint, name: str) -> bool:
    """Tell whether a model takes sounds over Chat Completions."""
    return any(held in name for held in endpoint.sounds)


def media_of(endpoint: Endpoint, name: str, *, is_chat: bool) -> MediaSupport:
    """Return which files a model takes over Chat Completions, or over Responses; OpenAI's take 50 MB at once."""
    is_limited = endpoint.store is not None
    most = _REQUEST_BYTES * 3 // 4 if is_limited else LARGEST_BYTES
    papers = frozenset({"text/", *(("application/pdf",) if endpoint.documents else ())})
    by_url = endpoint.documents and (endpoint.document_urls or not is_chat)
    return MediaSupport(
        image=MediaLimit(PICTURES, most, by_url=endpoint.image_urls) if endpoint.images else None,
        document=MediaLimit(papers, most, by_url=by_url),
        audio=MediaLimit(frozenset(SOUNDS), most) if is_chat and hears(endpoint, name) else None,
        largest_request_bytes=_REQUEST_BYTES if is_limited else None,
    )


def hosting_of(endpoint: Endpoint, name: str, *, is_chat: bool) -> HostedToolSupport:
    """Return which tools the service runs for a model; over Chat Completions only search models have one."""
    if not endpoint.hosts or (is_chat and "-search" not in name):
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
