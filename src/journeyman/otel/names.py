"""The names that telemetry goes out under. All that have a convention are here, and nowhere else.

They are those of OpenTelemetry's semantic conventions for generative AI, which are in development: where a name
changes, this file changes, and `CONVENTIONS` with it. What no convention names begins with `journeyman.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CONVENTIONS: Final = "1.44.0"
"""The version of the conventions that the names are from."""
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/{CONVENTIONS}"
SCOPE: Final = "journeyman"
"""The name of the tracer and of the meter."""

# -- spans ------------------------------------------------------------------------------------------------------------

OPERATION: Final = "gen_ai.operation.name"
CHAT: Final = "chat"
INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
PROVIDER: Final = "gen_ai.provider.name"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
ERROR: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_STOPS: Final = "gen_ai.request.stop_sequences"
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
OUTPUT_TYPE: Final = "gen_ai.output.type"

INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE: Final = "gen_ai.usage.cache_creation.input_tokens"
REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
COST: Final = "journeyman.usage.cost"
"""US dollars."""

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
CALL_ID: Final = "gen_ai.tool.call.id"

SYSTEM: Final = "gen_ai.system_instructions"
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
TOOLS: Final = "gen_ai.tool.definitions"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"

RUN_ID: Final = "journeyman.run.id"
PATH: Final = "journeyman.run.path"
MODE: Final = "journeyman.run.mode"
RESUMED: Final = "journeyman.run.resumed"
LEFT: Final = "journeyman.run.left"
ATTEMPTS: Final = "journeyman.attempts"
REQUESTS: Final = "journeyman.requests"
ATTEMPT: Final = "journeyman.attempt"
ITERATION: Final = "journeyman.iteration"
SUCCEEDED: Final = "journeyman.attempt.succeeded"
CACHED: Final = "journeyman.tool.cached"
DECISION: Final = "journeyman.decision"
REASON: Final = "journeyman.reason"
TOKENS_BEFORE: Final = "journeyman.tokens.before"
TOKENS_AFTER: Final = "journeyman.tokens.after"

# -- events of spans --------------------------------------------------------------------------------------------------

EVALUATED: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
DECIDED: Final = "journeyman.gate.decided"
ANSWERED: Final = "journeyman.approval.answered"
COMPACTED: Final = "journeyman.context.compacted"
ABANDONED: Final = "journeyman.call.abandoned"

# -- metrics ----------------------------------------------------------------------------------------------------------

DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
TOKEN_TYPE: Final = "gen_ai.token.type"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
DURATION_BUCKETS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""Seconds."""
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

# -- values -----------------------------------------------------------------------------------------------------------

PROVIDERS: Final[Mapping[str, str]] = {
    **{"google": "gcp.gemini", "vertex": "gcp.vertex_ai", "mistral": "mistral_ai", "xai": "x_ai"},
    **{"azure": "azure.ai.openai", "bedrock": "aws.bedrock"},
}
"""Providers that the conventions call otherwise than this library does."""
FINISHES: Final[Mapping[str, str]] = {
    **{"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_call", "max_tokens": "length"},
    **{"refusal": "content_filter"},
}
"""Stop reasons that the conventions call otherwise."""
