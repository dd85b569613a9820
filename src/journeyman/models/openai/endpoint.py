"""The services with an OpenAI-style API: what each can do, how it is reached, and the limits of its models.

An `Endpoint` is data: a preset for each known service, and every field of it can be replaced:
`dataclasses.replace(VLLM, tools=False)`, also within one: `media=replace(VLLM.media, images=False)`. What is said of
services and models is what their documentation gave in November 2026; what Chat Completions refuse is from the API's
own error texts (GitHub: openai/openai-openapi#541, BerriAI/litellm#34569).
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

    # -- what it can do
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

    # -- how it is asked
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

    # -- limits
    max_output_tokens: int | None = None
    """The longest answer of every model, in tokens; None: see `look_up_model`."""
    context_window: int | None = None
    """The most tokens in and out of every model; None: see `look_up_model`, and `server`."""
    server: Server | None = None
    """Which server it is, if it is one that tells the window of a model: it is asked when a run begins."""


OPENAI: Final = Endpoint(
    provider="openai",
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    needs_key=True,
    is_openai=True,
    strict=True,
    media=InputMedia(documents=True, sounds=("audio",)),
    reasoning=Reasoning(effort_field="reasoning_effort"),
    field_names={"max_tokens": "max_completion_tokens"},
    id_characters=(1, 40),
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
    media=InputMedia(documents=True, document_urls=True, sounds=("",)),
    cache_marks=("anthropic/", "~anthropic/"),
    usage="cost",
    reasoning=Reasoning(
        message_field="reasoning",
        is_echoed=True,
        has_details=True,
        effort_field="reasoning",
        efforts=("none", "minimal", "low", "medium", "high", "xhigh"),
        takes_budget=True,
    ),
)
"""OpenRouter, a gateway to many providers, which tells what an answer cost."""
OLLAMA: Final = Endpoint(
    provider="ollama",
    base_url="http://localhost:11434/v1",
    base_url_variable="OLLAMA_BASE_URL",
    key_variable="OLLAMA_API_KEY",
    reasoning=Reasoning(
        message_field="reasoning",
        is_echoed=True,
        effort_field="reasoning_effort",
        efforts=("none", "low", "medium", "high"),
    ),
    server="Ollama",
)
"""An Ollama server, by default on this machine."""
VLLM: Final = replace(
    OLLAMA,
    provider="vllm",
    base_url="http://localhost:8000/v1",
    base_url_variable="VLLM_BASE_URL",
    key_variable="VLLM_API_KEY",
    media=InputMedia(sounds=("",)),
    server="vLLM",
)
"""A vLLM server, by default on this machine."""
LLAMA_CPP: Final = replace(
    OLLAMA,
    provider="llama-cpp",
    base_url="http://localhost:8080/v1",
    base_url_variable="LLAMA_CPP_BASE_URL",
    key_variable="LLAMA_CPP_API_KEY",
    reasoning=replace(OLLAMA.reasoning, message_field="reasoning_content"),
    media=InputMedia(sounds=("",)),
    server="llama.cpp",
)
"""A llama.cpp server, by default on this machine."""
LM_STUDIO: Final = Endpoint(
    provider="lm-studio",
    base_url="http://localhost:1234/v1",
    base_url_variable="LM_STUDIO_BASE_URL",
    key_variable="LM_STUDIO_API_KEY",
    media=InputMedia(image_urls=False),
    reasoning=Reasoning(effort_field="reasoning_effort", efforts=("none", "low", "medium", "high")),
    server="LM Studio",
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


# -- other services ----------------------------------------------------------------------------------------------------
#
# None of these records was tried on its service. A record says what the service's documentation gave in November 2026
# or, where that says nothing, what the issues and the code of other clients tell: `docs/providers.md` has the sources.
# For what a record does not say, the service is treated like any compatible server.


MISTRAL: Final = Endpoint(
    provider="mistral",
    field_names={"seed": "random_seed"},
    base_url="https://api.mistral.ai/v1",
    base_url_variable="MISTRAL_BASE_URL",
    key_variable="MISTRAL_API_KEY",
    needs_key=True,
    id_characters=(9, 9),
    reply_after_results=True,
    usage="none",  # it is told anyway, and the option is refused
    reasoning=Reasoning(effort_field="reasoning_effort", efforts=("none", "high")),
)
"""Mistral's own service. It refuses fields that it does not know; reasoning comes as parts of the content."""
GROQ: Final = Endpoint(
    provider="groq",
    base_url="https://api.groq.com/openai/v1",
    base_url_variable="GROQ_BASE_URL",
    key_variable="GROQ_API_KEY",
    needs_key=True,
    field_names={"max_tokens": "max_completion_tokens"},
    reasoning=Reasoning(message_field="reasoning", effort_field="reasoning_effort", efforts=("none", *_THREE)),
)
"""Groq. Which efforts are taken depends on the model: `gpt-oss` has all but `none`, Qwen only that."""
DEEPSEEK: Final = Endpoint(
    provider="deepseek",
    base_url="https://api.deepseek.com",
    base_url_variable="DEEPSEEK_BASE_URL",
    key_variable="DEEPSEEK_API_KEY",
    needs_key=True,
    forces_calls=False,
    media=InputMedia(images=False),
    reasoning=Reasoning(
        is_echoed=True,
        is_needed_with_calls=True,
        effort_field="reasoning_effort",
        efforts=(*_THREE, "max"),
        off={"thinking": {"type": "disabled"}},
    ),
)
"""DeepSeek's own service. It reasons unless it is told not to, and wants its reasoning back with each call."""
XAI: Final = Endpoint(
    provider="xai",
    base_url="https://api.x.ai/v1",
    base_url_variable="XAI_BASE_URL",
    key_variable="XAI_API_KEY",
    needs_key=True,
    field_names={"max_tokens": "max_completion_tokens"},
    reasoning=Reasoning(effort_field="reasoning_effort", efforts=("none", *_THREE)),
)
"""xAI. Which efforts are taken depends on the model. Its count of output tokens leaves out those of reasoning."""
TOGETHER: Final = Endpoint(
    provider="together",
    base_url="https://api.together.ai/v1",
    base_url_variable="TOGETHER_BASE_URL",
    key_variable="TOGETHER_API_KEY",
    needs_key=True,
    usage="none",
    reasoning=Reasoning(message_field="reasoning", effort_field="reasoning_effort", efforts=_THREE),
)
"""Together AI. A stream tells its usage without being asked; some models stop with `eos`."""
FIREWORKS: Final = Endpoint(
    provider="fireworks",
    base_url="https://api.fireworks.ai/inference/v1",
    base_url_variable="FIREWORKS_BASE_URL",
    key_variable="FIREWORKS_API_KEY",
    needs_key=True,
    usage="none",
    reasoning=Reasoning(is_echoed=True, effort_field="reasoning_effort", efforts=("none", *_THREE)),
)
"""Fireworks AI. A stream tells its usage without being asked; models that reason between calls read it again."""
CEREBRAS: Final = Endpoint(
    provider="cerebras",
    base_url="https://api.cerebras.ai/v1",
    base_url_variable="CEREBRAS_BASE_URL",
    key_variable="CEREBRAS_API_KEY",
    needs_key=True,
    usage="none",
    field_names={"max_tokens": "max_completion_tokens"},
    reasoning=Reasoning(message_field="reasoning", effort_field="reasoning_effort", efforts=("none", *_THREE)),
)
"""Cerebras. A stream tells its usage without being asked; which efforts are taken depends on the model."""
HUGGINGFACE: Final = Endpoint(
    provider="huggingface",
    base_url="https://router.huggingface.co/v1",
    base_url_variable="HF_BASE_URL",
    key_variable="HF_TOKEN",
    needs_key=True,
    reasoning=Reasoning(effort_field="reasoning_effort", efforts=_THREE),
)
"""Hugging Face's router to many providers, which differ: `MODEL:PROVIDER` chooses one."""
COHERE: Final = Endpoint(
    provider="cohere",
    base_url="https://api.cohere.ai/compatibility/v1",
    base_url_variable="COHERE_BASE_URL",
    key_variable="CO_API_KEY",
    needs_key=True,
    usage="none",  # the option is refused
    reasoning=Reasoning(effort_field="reasoning_effort", efforts=("none", "high")),
)
"""Cohere's compatible endpoint; whether its streams tell their usage is not documented."""
PERPLEXITY: Final = Endpoint(
    provider="perplexity",
    base_url="https://api.perplexity.ai/v1",
    base_url_variable="PERPLEXITY_BASE_URL",
    key_variable="PERPLEXITY_API_KEY",
    needs_key=True,
    reasoning=Reasoning(efforts=_THREE),
)
"""Perplexity, over Responses: it ended its Chat Completions on 27 September 2026."""

OTHERS: Final = (MISTRAL, GROQ, DEEPSEEK, XAI, TOGETHER, FIREWORKS, CEREBRAS, HUGGINGFACE, COHERE, PERPLEXITY)
