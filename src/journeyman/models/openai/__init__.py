"""OpenAI's two APIs, and the services that speak one of them."""

from typing import TYPE_CHECKING

from journeyman.definition.faces import lazy_face

if TYPE_CHECKING:
    from journeyman.models.openai.chat import OpenAIChatModel
    from journeyman.models.openai.endpoint import (
        AZURE,
        CEREBRAS,
        COHERE,
        DEEPSEEK,
        FIREWORKS,
        GROQ,
        HUGGINGFACE,
        LLAMA_CPP,
        LM_STUDIO,
        MISTRAL,
        OLLAMA,
        OPENAI,
        OPENROUTER,
        PERPLEXITY,
        TOGETHER,
        VLLM,
        XAI,
        Endpoint,
        InputMedia,
        Reasoning,
    )
    from journeyman.models.openai.responses import OpenAIModel

__all__ = [
    "AZURE",
    "CEREBRAS",
    "COHERE",
    "DEEPSEEK",
    "FIREWORKS",
    "GROQ",
    "HUGGINGFACE",
    "LLAMA_CPP",
    "LM_STUDIO",
    "MISTRAL",
    "OLLAMA",
    "OPENAI",
    "OPENROUTER",
    "PERPLEXITY",
    "TOGETHER",
    "VLLM",
    "XAI",
    "Endpoint",
    "InputMedia",
    "OpenAIChatModel",
    "OpenAIModel",
    "Reasoning",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_face(
        __name__,
        {
            "chat": "OpenAIChatModel",
            "endpoint": (
                "AZURE CEREBRAS COHERE DEEPSEEK FIREWORKS GROQ HUGGINGFACE LLAMA_CPP LM_STUDIO MISTRAL OLLAMA OPENAI"
                " OPENROUTER PERPLEXITY TOGETHER VLLM XAI Endpoint InputMedia Reasoning"
            ),
            "responses": "OpenAIModel",
        },
    )
