"""Services that speak one of OpenAI's APIs, with what is known of each: one record, and the prefix of its models.

No record was tried on its service. A record says what the service's documentation gave in November 2026 or, where that
says nothing, what the issues and the code of other clients tell: `docs/providers.md` has the sources. For what a record
does not say, the service is treated like any compatible server. A record can be replaced: `connect("groq:…",
endpoint=replace(GROQ, …))`.
"""

from __future__ import annotations

from typing import Final

from journeyman.models.openai.endpoint import Endpoint, InputMedia, Reasoning

_THREE: Final = ("low", "medium", "high")

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

PRESETS: Final = (MISTRAL, GROQ, DEEPSEEK, XAI, TOGETHER, FIREWORKS, CEREBRAS, HUGGINGFACE, COHERE, PERPLEXITY)
