"""The names that telemetry goes out under. All that have a convention are here, and nowhere else.

They are those of OpenTelemetry's semantic conventions for generative AI, which have a repository of their own and are
in development: where a name changes, this file changes, and `CONVENTIONS` with it. What no convention names begins with
`journeyman.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONVENTIONS: Final = "open-telemetry/semantic-conventions-genai 0.1.0"
"""The repository of the conventions that the names are from, and its release."""
SCOPE: Final = "journeyman"
"""The name of the tracer and of the meter."""
SCOPE_FACTS: Final[Mapping[str, str]] = {"journeyman.semantic_conventions": CONVENTIONS}
"""Stands in place of a schema URL, because the repository has published none for its releases."""

OPERATION: Final = "gen_ai.operation.name"
CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
CONVERSATION: Final = "gen_ai.conversation.id"
ERROR: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_STOPS: Final = "gen_ai.request.stop_sequences"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
OUTPUT_TYPE: Final = "gen_ai.output.type"

INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
OF_REQUESTS_ONLY: Final = frozenset((CACHE_READ, CACHE_WRITE, REASONING))
"""What the span of a run does not say of all its requests."""
COST: Final = "journeyman.usage.cost"
"""US dollars."""

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_TYPE: Final = "gen_ai.tool.type"
FUNCTION: Final = "function"
CALL_ID: Final = "gen_ai.tool.call.id"

SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
TOOLS: Final = "gen_ai.tool.definitions"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
SHAPED: Final = frozenset((SYSTEM, INPUT, OUTPUT, TOOLS, ARGUMENTS, RESULT))
"""The attributes with what was said."""

RUN_ID: Final = "journeyman.run.id"
IDS: Final = frozenset((CONVERSATION, RESPONSE_ID, CALL_ID, RUN_ID))
"""The attributes that hold what providers and this library make by chance."""
PATH: Final = "journeyman.run.path"
MODE: Final = "journeyman.run.mode"
RESUMED: Final = "journeyman.run.resumed"
LEFT: Final = "journeyman.run.left"
ATTEMPTS: Final = "journeyman.attempts"
REQUESTS: Final = "journeyman.requests"
ATTEMPT: Final = "journeyman.attempt"
SPAN_KIND: Final = "openinference.span.kind"
"""What OpenInference calls the kind of a span. It takes a span without an operation for a request to a model, so where
the conventions have no operation, the span says what it is."""
CHAIN: Final = "CHAIN"
ITERATION: Final = "journeyman.iteration"
SUCCEEDED: Final = "journeyman.attempt.succeeded"
CACHED: Final = "journeyman.tool.cached"
DECISION: Final = "journeyman.decision"
REASON: Final = "journeyman.reason"
TOKENS_BEFORE: Final = "journeyman.tokens.before"
TOKENS_AFTER: Final = "journeyman.tokens.after"

EVALUATED: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
DECIDED: Final = "journeyman.gate.decided"
ANSWERED: Final = "journeyman.approval.answered"
COMPACTED: Final = "journeyman.context.compacted"
ABANDONED: Final = "journeyman.call.abandoned"
REFUSED: Final = "journeyman.sandbox.refused"
SANDBOX: Final = "journeyman.sandbox.name"
CAUSE: Final = "journeyman.sandbox.cause"
NEED: Final = "journeyman.sandbox.need"
WHAT: Final = "journeyman.sandbox.what"

INFERENCE_DURATION: Final = "gen_ai.client.inference.duration"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
TOKENS_OF_ONE: Final[Mapping[str, str]] = {
    INPUT_TOKENS: "gen_ai.client.inference.operation.input_tokens",
    OUTPUT_TOKENS: "gen_ai.client.inference.operation.output_tokens",
}
"""What tells how many tokens single requests use, by the attribute of a span that says the same."""
TOKENS_OF_ALL: Final[Mapping[str, str]] = {
    name: name.replace("gen_ai.usage.", "gen_ai.client.inference.usage.")
    for name in (INPUT_TOKENS, OUTPUT_TOKENS, CACHE_READ, CACHE_WRITE, REASONING)
}
"""What counts the tokens of all requests, by the attribute of a span that says the same."""
MODALITY: Final = "gen_ai.token.modality"
UNKNOWN: Final = "unknown"
DURATION_BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds, of a request or a call. The conventions advise these."""
AGENT_BUCKETS: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6)
"""Seconds, of a run."""
CALL_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
# Advised as well: powers of 4.
TOKEN_BUCKETS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)

QUEUED: Final = "journeyman.durable.queued"
CLAIMS: Final = "journeyman.durable.claims"
TAKEOVERS: Final = "journeyman.durable.takeovers"
WOKEN: Final = "journeyman.durable.woken"
SUSPENDED: Final = "journeyman.durable.suspended"
FENCED: Final = "journeyman.durable.fenced"
BLOCKED: Final = "journeyman.durable.blocked"
CLAIM_DURATION: Final = "journeyman.durable.claim.duration"
STEP_DURATION: Final = "journeyman.durable.step.duration"
STEP_SIZE: Final = "journeyman.durable.step.size"

PROVIDERS: Final[Mapping[str, str]] = {
    **{"google": "gcp.gemini", "vertex": "gcp.vertex_ai", "mistral": "mistral_ai", "xai": "x_ai"},
    **{"azure": "azure.ai.openai", "bedrock": "aws.bedrock", "moonshot": "moonshot_ai"},
}
"""Providers that the conventions call otherwise than this library does."""
FINISHES: Final[Mapping[str, str]] = {
    **{"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_call", "max_tokens": "length"},
    **{"refusal": "content_filter"},
}
"""Stop reasons that the conventions call otherwise."""
SAMPLING: Final[Mapping[str, tuple[str, type]]] = {
    **{"temperature": ("gen_ai.request.temperature", float), "seed": ("gen_ai.request.seed", int)},
    **dict.fromkeys(("top_p", "topP"), ("gen_ai.request.top_p", float)),
    **dict.fromkeys(("top_k", "topK"), ("gen_ai.request.top_k", int)),
    **dict.fromkeys(("frequency_penalty", "frequencyPenalty"), ("gen_ai.request.frequency_penalty", float)),
    **dict.fromkeys(("presence_penalty", "presencePenalty"), ("gen_ai.request.presence_penalty", float)),
}
"""How a model picks its words: the attribute and its type, by the name that providers give the setting."""
SAMPLING_WITHIN: Final = "generationConfig"
"""Where Google's API has its settings."""
