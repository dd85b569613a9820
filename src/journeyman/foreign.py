"""The names that people bring from other libraries, each with the line to write here instead.

One table for every class and function that takes arguments. In a line, `{}` is the value that was given. Names of ours
that are no longer used stand here, too, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar, cast

Work = TypeVar("Work", bound=Callable[..., Any])


def _lines_by_name(names: Mapping[str, str], lines: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the line of each foreign name: `names` has those of an argument of ours, which takes the same value."""
    return {
        **{foreign: f"{ours}={{}}" for ours, listed in names.items() for foreign in listed.split()},
        **{foreign: line for line, listed in (lines or {}).items() for foreign in listed.split()},
    }


def _inside(argument: str, kind: str, rows: Mapping[str, str], own: str = "") -> dict[str, str]:
    """Return the lines for names that belong to a parameter object one level below: `own` are its own names."""
    every = {**{name: f"{name}={{}}" for name in own.split()}, **rows}
    return {name: f"{argument}={kind}({line})" for name, line in every.items()}


_SETTINGS: Final = _lines_by_name(
    {
        "temperature": "temp",
        "top_p": "nucleus_p",
        "seed": "random_seed",
        "stop": "stop_sequences stop_words stop_tokens",
        "max_tokens": "max_output_tokens max_completion_tokens max_new_tokens num_predict",
        "thinking": "thinking_level reasoning_effort effort reasoning thinking_budget",
        "hosted": "builtin_tools native_tools server_tools",
        "extra": "extra_body extra_args additional_kwargs model_kwargs provider_options",
    },
    {f"extra={{{name!r}: {{}}}}": name for name in ("top_k", "frequency_penalty", "presence_penalty", "logit_bias")},
)
_LIMITS: Final = _lines_by_name(
    {
        "iterations": "max_iterations max_turns max_steps max_loops recursion_limit request_limit requests steps",
        "attempts": "max_attempts max_retries output_retries",
        "tokens": "total_tokens max_total_tokens total_tokens_limit token_limit",
        "calls": "max_calls max_tool_calls tool_calls tool_calls_limit",
        "seconds": "timeout timeout_s max_seconds max_time max_execution_time",
        "cost": "max_cost cost_limit max_budget max_budget_usd",
        "max_concurrency": "parallel_calls max_parallel_calls max_parallel_tool_calls concurrency",
        "request_retries": "num_retries",
        "result_chars": "max_result_chars",
    }
)
_AGENT: Final = {
    **_inside(
        "limits", "Limits", _LIMITS, "iterations attempts tokens calls seconds cost max_concurrency result_chars"
    ),
    **_inside(
        "settings", "ModelSettings", _SETTINGS, "temperature top_p seed stop max_tokens thinking tool_choice cache"
    ),
    **_lines_by_name(
        {
            "system": "instructions instruction system_prompt system_message preamble role backstory developer_message",
            "deps": "deps_type context context_schema context_type dependencies",
            "validators": "output_guardrails output_validators guardrails result_validators",
            "compaction": "history_processors context_manager memory",
            "description": "handoff_description goal",
            "input": "input_type input_schema args_schema",
            "tool_middleware": "hooks middleware middlewares",
            "tools": "functions toolsets",
            "track_tokens": "observability",
            "final_state": "project",
            "settings": "model_settings model_config generation_config",
            "limits": "usage_limits",
            "model": "llm model_name model_id language_model",
            "name": "id agent_name",
            "prompt": "user_prompt prompt_template",
            "stop_after": "tool_use_behavior",
            "gate": "input_guardrails permission permissions can_use_tool approval",
        },
        {
            "output=Output({})": (
                "output_type result_type response_format response_model output_schema output_model structured_output"
            ),
            "tools=[Subagents(agent)]": "handoffs sub_agents subagents agents team",
            "default_effect='idempotent'": "tools_are_idempotent",
            "limits=Limits(request_retries={})": "request_retries max_retries num_retries retries",
            "limits=Limits(result_chars={})": "max_result_chars",
            "limits=Limits(budget_policies={})": "budget_policies budget",
            "compaction=Compaction(transform_messages={})": "transform_messages convert",
        },
    ),
}
_CHAT: Final = _lines_by_name(
    {
        "history": "messages message_history chat_history previous_messages",
        "deps": "context dependencies",
        "on_event": "on_message on_step event_handler event_stream_handler stream_handler",
        "callbacks": "hooks handlers",
    },
    {
        "runtime=Runtime(approver={})": "approve approver",
        "runtime=Runtime(recorder={})": "record recorder",
        "runtime=Runtime(journal={})": "journal checkpointer",
        "runtime=Runtime(gate={})": "gate permission",
        "runtime=Runtime(telemetry={})": "telemetry tracer tracing",
        "runtime=Runtime(tasks={})": "tasks",
        "runtime=Runtime(budget={})": "budget",
    },
)
_TOOL: Final = _lines_by_name(
    {
        "description": "desc help docstring",
        "input_schema": "parameters args_schema schema json_schema params_json_schema inputSchema",
        "handler": "function func fn callable callback on_invoke_tool execute run",
        "timeout_s": "timeout",
        "max_chars": "max_length max_result_chars truncate",
        "name": "name_override title",
        "parallel": "concurrent is_concurrency_safe",
        "thread": "in_thread",
        "strict": "strict_mode",
        "deferred": "defer_loading",
    },
    {"effect='idempotent'": "idempotent is_idempotent", "effect='pure'": "read_only readOnlyHint pure"},
)
_OF_MEDIA: Final = ("images", "image_urls", "documents", "document_urls", "sounds")
_OF_REASONING: Final = {
    **{"reasoning_field": "message_field", "echoes_reasoning": "is_echoed", "reasoning_details": "has_details"},
    **{"reasoning_with_calls": "is_needed_with_calls", "reasoning_off": "off"},
    **{name: name for name in ("effort_field", "efforts", "takes_budget")},
}

ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "Agent": _AGENT,
    "ModelSettings": _SETTINGS,
    "Limits": _LIMITS,
    "Budget": {
        **{name: _LIMITS[name] for name in _LIMITS if _LIMITS[name].startswith(("tokens", "cost", "sec", "calls"))}
    },
    "Runtime": _lines_by_name(
        {
            "approver": "approve on_approval ask approval can_use_tool",
            "recorder": "record recording store",
            "journal": "checkpointer memory",
            "gate": "permission permissions guard",
            "telemetry": "tracer tracing tracer_provider otel",
            "grace_s": "grace timeout grace_seconds",
            "model": "llm",
        }
    ),
    "Output": _lines_by_name(
        {
            "type": "schema model output_type type_ json_schema",
            "name": "tool_name title",
            "description": "desc tool_description",
            "strict": "strict_json_schema strict_mode",
            "reflection": "reflect review",
        },
        {"mode='native'": "native", "mode='tool'": "tool", "mode='prompted'": "prompted"},
    ),
    "Callbacks": _lines_by_name(
        {
            "on_run_start": "on_start on_agent_start before_run on_chain_start before_agent_callback",
            "on_iteration_start": "on_llm_start on_step_start on_turn_start before_model_callback",
            "on_model_response": "on_llm_end on_step_end on_turn_end after_model_callback on_response",
            "on_tool_call": "on_tool_start before_tool on_tool before_tool_callback pre_tool_use",
            "on_tool_result": "on_tool_end after_tool after_tool_callback post_tool_use",
            "on_success": "on_end on_agent_end on_finish on_chain_end on_complete on_run_end",
            "on_failure": "on_error on_exception on_chain_error on_tool_error",
        }
    ),
    "Tool": _TOOL,
    "Subagents": _lines_by_name({"deps": "context dependencies"}),
    "Chat": _CHAT,
    "Endpoint": {
        **{name: f"media=InputMedia({name}={{}})" for name in _OF_MEDIA},
        **{old: f"reasoning=Reasoning({now}={{}})" for old, now in _OF_REASONING.items()},
        "max_tokens_field": "field_names={'max_tokens': {}}",
        "sampling": "field_names={}",
        "longest_id": "id_characters=(1, {})",
        "exact_id": "id_characters=({}, {})",
        "hosts": "is_openai={}",
        "refusals": "is_openai={}",
    },
    "ScriptedModel": _lines_by_name({"answers": "responses script messages replies", "repeat": "loop cycle"}),
}
"""By class or function: what to write for a foreign name."""

ELSEWHERE: Final[Mapping[str, Mapping[str, str]]] = {
    "Agent": {
        "api_key": "Write model=connect('provider:name', api_key=…), or set the provider's variable.",
        "base_url": "Write model=connect('provider:name', base_url=…).",
        "mcp_servers": "Enter them: 'async with mcp(…) as tools:', and make the agent inside, with tools=tools.",
        "verbose": "Leave it out, and write run(agent, input, on_event=print).",
        "stream": "Leave it out, and write stream(agent, input) for run(agent, input).",
        "callbacks": "Give them to the run: run(agent, input, callbacks=Callbacks(…)).",
        "history": "Give it to the run: run(agent, input, history=…).",
        "reminder": "Write output=Output(…, reminder={}).",
        "nudge": "Write output=Output(…, reminder={}).",
        "feedback_role": "Write output=Output(…, feedback_role={}).",
        "feedback": "Write output=Output(…, feedback_role={}).",
        "system_mode": "Write system=TeamPrompt(…, mode={}), with TeamPrompt of journeyman.agent.",
        "metadata": "Leave it out: no run reads it. Keep what you know of your agents by their names.",
    },
    "Limits": {
        "max_tokens": (
            "Write tokens={} for all that a run may use, or Agent(settings=ModelSettings(max_tokens={}))"
            " for one answer."
        )
    },
    "Chat": {
        "model": "Write Chat(agent, runtime=Runtime(model=connect('provider:name'))).",
        "llm": "Write Chat(agent, runtime=Runtime(model=connect('provider:name'))).",
    },
    "Endpoint": {
        "query": "Write it behind the address: base_url='https://HOST?name=value'.",
        "start": "Leave it out: it goes by server.",
        "store": "Write ModelSettings(extra={'store': {}}).",
        "system_role": "Leave it out: every service takes 'system'.",
        "tells_cost": "Write usage='cost'.",
        "usage_in_stream": "Write usage='none' for a service that refuses to be asked, else leave it out.",
    },
    "Cassette": {"realtime": "Leave it out: a replay gives at once what was recorded."},
    "ScriptedModel": {"output": "Write ScriptedModel([call('output', …)])."},
    "ServeLimits": {
        "body_s": "Leave it out: a body has 30 s.",
        "slow_s": "Leave it out: a client has 30 s, as on every port.",
        "quiet_s": "Leave it out: a comment is sent after 15 s.",
        "retry_s": "Leave it out: clients are told 1 s.",
    },
}
"""By class or function: what to do about a foreign name that no argument of it stands for."""

UNNAMED: Final[Mapping[str, str]] = {"Agent": "Agent(name='assistant', model={})"}
"""By class: the line for an argument that is given without a name; for all others, that of the first argument."""

ATTRIBUTES: Final[Mapping[str, Mapping[str, str]]] = {
    "Agent": {
        "run": "Write await run(agent, input).",
        "arun": "Write await run(agent, input).",
        "invoke": "Write run_sync(agent, input).",
        "ainvoke": "Write await run(agent, input).",
        "run_sync": "Write run_sync(agent, input).",
        "run_stream": "Write stream(agent, input).",
        "stream": "Write stream(agent, input).",
        "iter": "Write stream(agent, input).",
        "tool": "Decorate a function with @tool, and make the agent with tools=[function].",
        "tool_plain": "Decorate a function with @tool, and make the agent with tools=[function].",
        "output_validator": "Make the agent with validators=[function].",
        "system_prompt": "Make the agent with system=function.",
        "instructions": "Make the agent with system=function.",
        "as_tool": "Make the other agent with tools=[Subagents(agent)].",
        "override": "Write dataclasses.replace(agent, …), or run(agent, input, runtime=Runtime(model=…)).",
        "to_web": "Write journeyman serve FILE:AGENT.",
    },
    "Durable": {"cancel": "Write await durable.stop(run, reason)."},
    "Success": {
        "data": "Write result.output.",
        "final_output": "Write result.output.",
        "usage": "Write result.metadata.usage.",
        "messages": "Write result.history.",
        "all_messages": "Write result.history.",
        "new_messages": "Write result.history.",
        "error": "Only a Failure has one: ask isinstance(result, Failure) first.",
    },
    "Failure": {
        "output": "Ask isinstance(result, Success) first, or write result.unwrap_or(default).",
        "data": "Ask isinstance(result, Success) first; the output is result.output.",
        "final_output": "Ask isinstance(result, Success) first; the output is result.output.",
        "usage": "Write result.metadata.usage.",
        "message": "Write result.error.message.",
        "messages": "Write result.history.",
        "all_messages": "Write result.history.",
    },
}
"""By class: what to write for an attribute that other libraries have."""

RENAMED: Final[Mapping[str, str]] = {
    "journeyman": (
        "Host Runtime, Allowance Budget, Ending ErrorInfo, Exceeded budget.LimitExceeded, Spent budget.Spending,"
        " Stopping output.StopContext, KeepGoing output.ContinueRun, Escalate output.FailRun, Submit SubmitTool,"
        " Rejection prompt.ErrorPromptContext, Settings ModelSettings,"
        " CallbackContext events.CallbackContext, Listener events.Listener, ChatBusy errors.ChatBusy,"
        " ChatHeld errors.ChatHeld, ModelUnavailable errors.ModelUnavailable, ProviderError errors.ProviderError,"
        " RunError errors.RunError, ContinueRun output.ContinueRun, FailRun output.FailRun,"
        " StopContext output.StopContext, ErrorPromptContext prompt.ErrorPromptContext,"
        " InMemoryJournal journal.InMemoryJournal,"
        " LimitExceeded budget.LimitExceeded, Spending budget.Spending, Metadata result.Metadata,"
        " Price types.Price, validation_context loop.validation_context"
    ),
    "journeyman.content": "Media MediaSupport, Taken MediaLimit",
    "journeyman.durable": (
        "Handle RunHandle, Driving ResumeRun, HandOver Requeue, Question PendingQuestion, ddl schema_sql"
    ),
    "journeyman.events": (
        "RunFenced RunClaimLost, RunHalted RunNeedsAttention, Mail TeamMessage, Liveness MemberStatus,"
        " Reason DeadLetterReason"
    ),
    "journeyman.hosted": "Hosting HostedToolSupport, Found SearchHit",
    "journeyman.loop": "from_checker loop.validator_from, run_sync .run_sync, stream .stream, Events .Events",
    "journeyman.models": (
        "Scripted testing.ScriptedModel, FromFunction testing.FunctionModel, Faulty testing.FaultyModel,"
        " Around WrapperModel, Fallback FallbackModel, RateLimited RateLimitedModel, Swappable SwappableModel"
    ),
    "journeyman.models.scripted": (
        "Scripted testing.ScriptedModel, FromFunction testing.FunctionModel, call testing.call, say testing.say,"
        " Answer testing.Answer, Policy testing.Policy"
    ),
    "journeyman.models.cassette": "Mode CassetteMode",
    "journeyman.otel": "exporting configure_exporter",
    "journeyman.permission": "Pending PendingApproval, Mode PermissionMode, Root WorkingFolder",
    "journeyman.record": "RecordingTape RunRecording, Piece RequestPart, Found TextMatch, SentRequest StoredRequest",
    "journeyman.serve": (
        "app create_app, agent_server mcp_server.create_mcp_server, serve_http mcp_server.serve_mcp_http,"
        " serve_stdio mcp_server.serve_mcp_stdio, AgentServer mcp_server.AgentServer"
    ),
    "journeyman.team": "Roster TeamSnapshot, Shutdown ShutdownResult",
    "journeyman.toolbox": (
        "Facts FileInfo, Entry DirEntry, Files FileSystem, Refusal ToolRefused, fetched download_media,"
        " project_memory load_agents_md"
    ),
    "journeyman.tools": "Next CallNext",
    "journeyman.view": "app create_viewer",
}

"""By package: its names of before, each with the one of now, and where that stands if not in the same package; `.name`
is a name of the front page."""

OLD_ARGUMENTS: Final[Mapping[str, str]] = {
    "host": "runtime",
    **dict.fromkeys(("at_once", "slots", "concurrency"), "max_concurrency"),
    "max_parallel": "max_tasks",
    "equip": "prepare",
    "dedup": "idempotency_key",
    "digest": "question_id",
    "linger_s": "suspend_after_s",
}
"""The arguments of before, of whatever class or function, each with the one of now."""

OLD_OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("--at-once", "--slots", "--runs"), "is called --max-concurrency now"),
    "--continue": "is written --resume now, without an id",
    "--input-file": "is written < FILE now, as for any program",
    "--realtime": "is gone: a recording is shown at once",
    "--ask-store": "is gone: begin the run with --detach, and a worker does it and waits for its answers",
    "--reason": "stands behind stop now: journeyman tell RUN stop REASON",
    "--failed": "is written --status failed now",
    "--keep-failed": "is written --status done now",
    "--token": "is read from JOURNEYMAN_VIEW_TOKEN now, since all users of a machine see its command lines",
    "--cassette": "is called --out now",
    "--durable": "is for run, batch and serve; the store is named by --store",
}
"""The options of commands of before, each with what says the same now."""

OLD_COMMANDS: Final[Mapping[str, str]] = {
    "record": "cassette record FILE:AGENT [INPUT] --out FILE",
    "replay": "cassette replay CASSETTE [FILE:AGENT] [INPUT]",
    "test": "cassette test RUN [FILE:AGENT]",
    "tail": "show RUN --follow",
    "diff": "show RUN --diff OTHER",
    "queues": "runs --queues",
    **dict.fromkeys(("cancel", "stop"), "tell RUN stop [REASON]"),
    "steer": "tell RUN steer TEXT",
    "approve": "tell RUN approve QUESTION",
    "deny": "tell RUN approve QUESTION --deny WHY",
    "answer": "tell RUN answer QUESTION TEXT",
    "hold": "tell RUN hold",
    "release": "tell RUN release",
}
"""The commands of before, each with the one of now."""

OLD_SLASH_WORDS: Final[Mapping[str, str]] = {
    "/steer": "Type the text alone: while the agent works, it is said before its next model call.",
    "/abort": "Press Esc, or Ctrl-C.",
    "/tools": "In a shell: journeyman check FILE:AGENT.",
    "/export": "In a shell: journeyman export RUN; in Python, dump_messages(chat.messages).",
}
"""The words of a chat in the terminal of before, each with what does the same now."""
STREAM_CHANGED: Final = (
    "Each line of --stream says its class as type now, which was event, and leaves out the fields with their defaults."
)
"""The sentence for whoever reads the lines in the form of before."""
_OF_RUNTIME: Final = "Host is called Runtime now: run(…, runtime=Runtime(approver=…))."


def tell_new_name(package: str, old: str) -> str | None:
    """Return the sentence that says what a name of a package is called now; None for one that it never had."""
    for row in RENAMED.get(package, "").split(", "):
        before, _, now = row.partition(" ")
        if before == old:
            room, dot, now = now.rpartition(".")
            package = f"journeyman.{room}".rstrip(".") if dot else package
            how = f"stands in {package}" if now == old else f"is called {now}"
            return _OF_RUNTIME if old == "Host" else f"{old} {how} now: from {package} import {now}."
    return None


def refuse_old_arguments(function: Work) -> Work:
    """Let a function say what an argument of before is called now, in the `TypeError` of one that it does not know."""

    @wraps(function)
    def call(*given: object, **named: object) -> object:
        if (old := next(iter(named.keys() & OLD_ARGUMENTS.keys()), None)) is not None:
            raise TypeError(f"{function.__name__}() has no {old!r}. Write {OLD_ARGUMENTS[old]}=….")
        return function(*given, **named)

    return cast("Work", call)
