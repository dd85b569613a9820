"""Tools: typed functions that a model may call, and what may wrap their calls.

`@tool` reads a function's signature and docstring; `Tool` also takes a JSON Schema as it is. Nothing here runs a tool
but `Tool.invoke`, which only the loop calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, field, fields, is_dataclass, replace
from enum import Enum
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypedDict,
    Unpack,
    cast,
    overload,
)

from pydantic import BaseModel, Secret, SecretBytes, SecretStr
from typing_extensions import TypeVar

from journeyman.cancellation import is_awaited
from journeyman.definition.data import lazy_dataclass
from journeyman.definition.narrowing import is_list_or_tuple, is_mapping, is_set, is_str_dict
from journeyman.definition.problems import is_amount, is_count, raise_problems
from journeyman.definition.references import SentByName
from journeyman.errors import DefinitionError, Problem
from journeyman.gate import READY_TOOLS, CommandBox, Gate, ReadyTool
from journeyman.model import ToolSpec
from journeyman.tools.context import ToolContext, ToolsetContext
from journeyman.tools.dicts import read_tool_dict
from journeyman.tools.raw_schema import RawSchema, size_problems
from journeyman.tools.schema import Arguments, Fields, schema_problems
from journeyman.tools.signature import (
    Signature,
    injected_parameter,
    is_async,
    keyword_parameters,
    positional_parameters,
    read_signature,
)
from journeyman.tools.strict import strict_problems
from journeyman.types import Effect, JsonObject, ToolResult

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Needs = TypeVar("Needs", default=object, contravariant=True)
D = TypeVar("D")


CacheScope: TypeAlias = Literal["attempt", "run"]
"""How long a cached result is good: for the attempt, or for the run."""


@lazy_dataclass(frozen=True, kw_only=True)
class MiddlewareCall:
    """One call on its way to the tool."""

    tool_name: str
    arguments: dict[str, object]
    """As the tool will get them. What a middleware changes here, those inside it and the tool see."""
    context: ToolContext[Any]
    """What the tool gets to know about its call."""

    @property
    def tool_use_id(self) -> str:
        return self.context.tool_use_id


CallNext: TypeAlias = Callable[[MiddlewareCall], Awaitable[ToolResult]]
"""The rest of the way: the middlewares further inside, then the tool."""

Middleware: TypeAlias = Callable[[MiddlewareCall, CallNext], Awaitable[ToolResult]]
"""Wraps the calls of all tools. It awaits `CallNext` once, or not at all to answer instead of the tool."""


_Prepare: TypeAlias = Callable[["AnyTool", ToolsetContext[Any, Any]], "AnyTool | Awaitable[AnyTool | None] | None"]
"""Returns a tool as it is at this moment, changed by `dataclasses.replace`; None: it is not there."""


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`; they are explained at the fields of `Tool`."""

    parallel: bool
    effect: Effect | None
    cache: CacheScope | Literal[False]
    timeout_s: float | None
    thread: bool | None
    max_chars: int | None
    strict: bool
    provider_schemas: Mapping[str, JsonObject]
    untrusted: bool | Literal["throughout"]
    permission_kind: ReadyTool | None
    find_box: Callable[[], Awaitable[CommandBox | None]] | None


class _MakerOptions(ToolOptions, total=False):
    """The options of `@tool`: those of a tool, and what changes it."""

    prepare: _Prepare | None
    """Called with the tool and a `ToolsetContext` once for each run: returns the tool as it is there, changed by
    `dataclasses.replace`, or None if it is not there."""


@lazy_dataclass(frozen=True)
class _CallPath:
    """What calls of one tool have to pass, besides what all calls do."""

    middleware: tuple[Middleware, ...] = ()
    """The functions that are wrapped around them, inside those of the agent."""
    gates: tuple[Gate, ...] = ()
    """The gates that decide about them, after those of the run."""


@lazy_dataclass(frozen=True)
class _Binding:
    """The link from a call to a tool's handler: it checks the arguments, and calls the handler with them."""

    arguments: Arguments
    call: Callable[[dict[str, object], ToolContext[Any] | None], object]
    is_async: bool
    """True when the handler is known to return an awaitable."""
    wants_context: bool
    """False when the handler has no place for a `ToolContext`."""
    asked: tuple[object, ...] = ()
    """What its `ToolContext` asks for: the type of the deps, and that of the input."""
    call_path: _CallPath = _CallPath()
    prepare: _Prepare | None = None

    def with_schema(self, schema: JsonObject) -> _Binding:
        """Return the same for arguments that also have to fit another schema than the handler's own."""
        new = RawSchema(schema)
        return replace(self, arguments=new if isinstance(self.arguments, RawSchema) else _Narrowed(new, self.arguments))


class _Narrowed:
    """Arguments that have to fit a schema, and then the parameters of the handler."""

    def __init__(self, schema: RawSchema, own: Arguments) -> None:
        self.input_schema, self.may_be_quoted = schema.input_schema, schema.may_be_quoted and own.may_be_quoted
        self._schema, self._own = schema, own

    def parse(self, input_json: str | bytes, subject: str) -> dict[str, object]:
        self._schema.parse(input_json, subject)
        return self._own.parse(input_json, subject)


@lazy_dataclass(frozen=True, eq=False)
class Tool(SentByName, Generic[P, R, Needs]):
    """Something that a model may call. Called as a function, it is the function.

    Given a JSON Schema, the handler takes the arguments as one dict, and the `ToolContext` if it has a parameter of
    that type or a second one. `Needs` is the type of the deps that its context asks for.
    """

    name: str
    """The name by which the model calls it."""
    description: str
    """What the model reads about it."""
    input_schema: JsonObject
    """The JSON schema of its arguments."""
    handler: Callable[P, R]
    """The function that does the work."""
    _: KW_ONLY
    parallel: bool = False
    """True: it may run at the same time as its neighbours in a response. It may then not set state."""
    effect: Effect | None = None
    """None: what the agent says of its tools."""
    cache: CacheScope | Literal[False] = False
    """How long a result answers the same call again. Only for pure tools, which may then not set state."""
    timeout_s: float | None = None
    """How long a call may take, in seconds; None for no limit of its own."""
    thread: bool | None = None
    """Whether to run it in a thread of its own. None: if it is not async."""
    max_chars: int | None = None
    """The longest result, in characters; None: what the agent says."""
    strict: bool = False
    """Ask the provider to guarantee the schema, where it can do so without loss."""
    provider_schemas: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    """The tool as providers define it themselves, by their short names: `{"anthropic": {"type": "bash_20250124"}}`.
    Such a provider is sent that with the name, and no description or schema; all others get those."""
    deferred: bool = False
    """True: the model is not told of it until a search finds it. Set by `journeyman.toolbox.deferred_tools`."""
    is_proxy: bool = False
    """True: it calls deferred tools for models whose provider cannot load them; others are not told of it."""
    untrusted: bool | Literal["throughout"] = False
    """True: its results come from outside and may hold instructions that are not the user's. `throughout`: so may its
    description and schema, as with a tool of an MCP server that was not pinned."""
    journals_itself: bool = False
    """True: it records its own steps in the journal of the run, and so goes on by itself where it was cut off."""
    permission_kind: ReadyTool | None = None
    """The ready tool that it is, or does the work of, with arguments that mean the same. Permissions know it by this,
    and never by its name. None: a tool of its own."""
    proxied: Mapping[str, ReadyTool] = field(default_factory=dict[str, ReadyTool])
    """Where it passes calls on: what the tools behind it act as, by name."""
    external: bool = False
    """True: another program describes it and does its work, as with a tool of an MCP server; or it passes calls on to
    such."""
    server_names: tuple[str, ...] = ()
    """What rules call a tool of an MCP server: `mcp__SERVER__TOOL`, and `mcp__SERVER`."""
    find_box: Callable[[], Awaitable[CommandBox | None]] | None = None
    """Returns the box that its commands run in, or None where nothing holds one. Asked before gates judge a call."""
    spec: ToolSpec = field(init=False, repr=False)
    """The tool as the model sees it."""
    _binding: _Binding = field(default=cast("_Binding", None), repr=False)

    def __post_init__(self) -> None:
        # The caller may go on changing its dict: the model is told and checked by what it was.
        object.__setattr__(self, "input_schema", deepcopy(self.input_schema))
        binding = self._binding or self._bind_raw()
        if isinstance(self.input_schema, dict) and binding.arguments.input_schema != {  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
            name: each for name, each in self.input_schema.items() if name != "$schema"
        }:
            binding = binding.with_schema(deepcopy(self.input_schema))  # `replace` has given a copy another one
        spec = ToolSpec(
            name=self.name,
            description=self.description,
            input_schema=binding.arguments.input_schema,
            strict=self.strict,
            provider_schemas={provider: {**form} for provider, form in self.provider_schemas.items()},
            deferred=self.deferred,
            is_proxy=self.is_proxy,
        )
        object.__setattr__(self, "_binding", binding)
        object.__setattr__(self, "spec", spec)

    def _bind_raw(self) -> _Binding:
        schema = deepcopy(self.input_schema)
        given = self._read_schema(schema if isinstance(schema, dict) else {})  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
        name, asked = injected_parameter(self.handler, ToolContext)
        call = _raw_call(self.handler, name)
        return _Binding(given, call, is_async(self.handler), wants_context=True, asked=asked)

    def _read_schema(self, schema: JsonObject) -> Arguments:
        """Return the check of the arguments; tools of the library have one of their own, which needs no package."""
        return RawSchema(schema)

    @classmethod
    def from_dict(
        cls, description: Mapping[str, object], handler: Callable[..., object], **options: Unpack[ToolOptions]
    ) -> AnyTool:
        """Return the tool that a dict describes: one of OpenAI's (Chat Completions or Responses), of Anthropic, Gemini
        or MCP.

        The handler gets the arguments by their names where it has a parameter for each property of the schema, and
        otherwise as one dict. `readOnlyHint` and `idempotentHint` are the effect, unless `options` have one; the other
        hints of MCP say nothing that a tool carries.

        Raises:
            DefinitionError: it is no such dict, or says what a tool cannot carry; lists every problem.
        """
        given = read_tool_dict(description)
        options = {"strict": given.strict, "effect": given.effect, **options}
        properties = given.schema.get("properties")
        names = set(properties) if is_str_dict(properties) else set[str]()
        if not names or not names <= keyword_parameters(handler):
            return Tool(given.name, given.description, given.schema, handler, **options)
        name, asked = injected_parameter(handler, ToolContext)
        call = _typed_call(handler, name)
        binding = _Binding(RawSchema(given.schema), call, is_async(handler), wants_context=True, asked=asked)
        return Tool(given.name, given.description, given.schema, handler, _binding=binding, **options)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the handler, without any check."""
        return self.handler(*args, **kwargs)

    def parse(self, input_json: str | bytes) -> dict[str, object]:
        """Return the arguments that the model wrote, checked, as values of their types, in objects of their own.

        Raises:
            InvalidArguments: they do not fit; it lists every issue.
        """
        return self._binding.arguments.parse(input_json, f"arguments for tool {self.name!r}")

    @property
    def in_thread(self) -> bool:
        """Whether the loop runs it in a thread."""
        return not self.is_async if self.thread is None else self.thread

    @property
    def wants_context(self) -> bool:
        """False when the handler has no place for a `ToolContext`, so that none need be made."""
        return self._binding.wants_context

    @property
    def schema_fault(self) -> str | None:
        """The reason why the schema can check no arguments; None if it can, as every schema of a signature can."""
        arguments = self._binding.arguments
        return arguments.fault() if isinstance(arguments, RawSchema) else None

    @property
    def is_async(self) -> bool:
        """True when the handler is known to return an awaitable; one that is not known to may still do so."""
        return self._binding.is_async

    @property
    def asked_deps(self) -> tuple[object, ...]:
        """The types of the deps that it asks for; none: it takes any."""
        return self._binding.asked[:1]

    @property
    def asked_input(self) -> object:
        """The type of the run's input that it asks for; `object`: it takes any."""
        return self._binding.asked[1] if len(self._binding.asked) > 1 else object

    @property
    def may_be_quoted(self) -> bool:
        """False when what the model wrote may hold secrets, so that no error may repeat it."""
        return self._binding.arguments.may_be_quoted

    @property
    def prepare(self) -> _Prepare | None:
        """Returns the tool as it is in a run, or None if it is not there. Called as a toolset is: once for each run.
        None: the tool is the same in all runs."""
        return self._binding.prepare

    @property
    def call_path(self) -> _CallPath:
        """What calls of this tool have to pass, besides what all calls do."""
        return self._binding.call_path

    def invoke(self, arguments: dict[str, object], context: ToolContext[Any] | None) -> object:
        """Call the handler with parsed arguments. What it returns may have to be awaited."""
        return self._binding.call(arguments, context)

    def cache_key(self, arguments: Mapping[str, object]) -> str:
        """Return the key for parsed arguments: the name, and a text that is the same for equal arguments."""
        return f"{self.name}:{canonical(arguments)}"


AnyTool: TypeAlias = Tool[..., object, Any]
"""A tool, whatever its parameters and its result."""


def change_tool(
    tool: AnyTool,
    *,
    middleware: Sequence[Middleware] = (),
    gates: Sequence[Gate] = (),
    name: str = "",
    is_prepared: bool = False,
) -> AnyTool:
    """Return a tool of the same class that is called by another name, or whose calls pass more on their way; or that
    is prepared, for this moment."""
    made = object.__new__(type(tool))
    # Past the constructor: that of a subclass takes other arguments. What a host sets later at the one, such as
    # `Subagents.tasks`, holds for both: they share their attributes.
    for kind in type(tool).__mro__:
        for slot in vars(kind).get("__slots__", ()):
            object.__setattr__(made, slot, getattr(tool, slot))
    if hasattr(tool, "__dict__"):
        object.__setattr__(made, "__dict__", tool.__dict__)
    old: _Binding = object.__getattribute__(tool, "_binding")
    # The one that is added last is outermost.
    path = _CallPath((*middleware, *old.call_path.middleware), (*old.call_path.gates, *gates))
    object.__setattr__(made, "_binding", replace(old, call_path=path, prepare=None if is_prepared else old.prepare))
    object.__setattr__(made, "name", name or tool.name)
    object.__setattr__(made, "spec", replace(tool.spec, name=name or tool.name))
    return made


def watch_calls(tool: AnyTool, see: Callable[[object], None]) -> AnyTool:
    """Return a tool with a function that sees what each call returns."""
    binding: _Binding = object.__getattribute__(tool, "_binding")

    async def see_later(value: Awaitable[object]) -> object:
        returned = await value
        see(returned)
        return returned

    def call(arguments: dict[str, object], context: ToolContext[Any] | None) -> object:
        returned = binding.call(arguments, context)
        if is_awaited(returned):
            return see_later(returned)
        see(returned)
        return returned

    return replace(tool, _binding=replace(binding, call=call))


def _raw_call(
    handler: Callable[..., object], name: str | None
) -> Callable[[dict[str, object], ToolContext[Any] | None], object]:
    by_position = positional_parameters(handler)
    if name is None:
        return handler if len(by_position) > 1 else lambda arguments, context: handler(arguments)
    if by_position[:1] == [name]:
        return lambda arguments, context: handler(context, arguments)
    return lambda arguments, context: handler(arguments, **{name: context})


def _typed_call(
    function: Callable[..., object], injected: str | None
) -> Callable[[dict[str, object], ToolContext[Any] | None], object]:
    if injected is None:
        return lambda arguments, context: function(**arguments)
    return lambda arguments, context: function(**arguments, **{injected: context})


class _NoContext:
    """Taken by parameters of type `object` or `Any` alone: by this, type checkers tell them from a `ToolContext`."""


class Decorator(Protocol):
    """Makes a tool of a function."""

    @overload
    def __call__(self, function: Callable[Concatenate[_NoContext, P], R], /) -> Tool[Concatenate[Any, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[D, Any], P], R], /
    ) -> Tool[Concatenate[ToolContext[D, Any], P], R, D]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    function: Callable[Concatenate[_NoContext, P], R],
    /,
    *,
    name: str = ...,
    description: str = ...,
    **options: Unpack[_MakerOptions],
) -> Tool[Concatenate[Any, P], R]: ...
@overload
def tool(
    function: Callable[Concatenate[ToolContext[D, Any], P], R],
    /,
    *,
    name: str = ...,
    description: str = ...,
    **options: Unpack[_MakerOptions],
) -> Tool[Concatenate[ToolContext[D, Any], P], R, D]: ...
@overload
def tool(
    function: Callable[P, R], /, *, name: str = ..., description: str = ..., **options: Unpack[_MakerOptions]
) -> Tool[P, R]: ...
@overload
def tool(*, name: str = ..., description: str = ..., **options: Unpack[_MakerOptions]) -> Decorator: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    **options: Unpack[_MakerOptions],
) -> Tool[..., Any, Any] | Decorator:
    """Make a tool of a function: `@tool`, `@tool(parallel=True)`, or `tool(function, name="search")`.

    Name and description come from the function and its docstring unless they are given. Each parameter needs a type;
    its description comes from the docstring or from `Annotated[..., Field(description=...)]`.

    Raises:
        DefinitionError: it lists everything that is wrong with the function or the options.
    """

    def decorate(function: Callable[..., Any], /) -> Tool[..., Any, Any]:
        return _make_tool(function, name, description, options)

    return decorate if function is None else decorate(function)


def _make_tool(function: Callable[P, R], name: str, description: str, given: _MakerOptions) -> Tool[P, R, Any]:
    prepare = given.get("prepare")
    options: Any = {name: each for name, each in given.items() if name != "prepare"}
    signature = read_signature(function, ToolContext)
    fields, problems = _compile_fields(signature)
    call = _typed_call(function, signature.injected)
    made: Tool[P, R, Any] = Tool(
        name or signature.name,
        description or signature.description,
        fields.input_schema,
        function,
        **options,
        _binding=_Binding(
            fields,
            call,
            signature.is_async,
            wants_context=signature.injected is not None,
            asked=signature.asked,
            prepare=prepare,
        ),
    )
    raise_problems(f"Tool {made.name!r}" if made.name else "A tool", [*problems, *tool_problems(made)])
    return made


def _compile_fields(signature: Signature) -> tuple[Fields, list[Problem]]:
    try:
        return Fields(signature.parameters), list(signature.problems)
    except DefinitionError as error:
        return Fields(()), [*signature.problems, *error.problems]


TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def tool_problems(tool: AnyTool) -> list[Problem]:
    """Return everything that is wrong with the definition of a tool: the check of one that was built directly."""
    schema = tool.spec.input_schema
    wrong = [*schema_problems(schema), *size_problems(schema)]
    if not wrong and (fault := tool.schema_fault) is not None:
        hint = "Correct it: https://json-schema.org/draft/2020-12 says what a schema may hold."
        text = f"The input schema of tool {tool.name!r} is faulty, so that no call could be checked: {fault}."
        wrong = [Problem("INVALID_INPUT_SCHEMA", text, hint)]
    wrong += strict_problems(schema) if tool.strict and not wrong else []
    return [*_name_problems(tool.name), *wrong, *_option_problems(tool)]


def _name_problems(name: object) -> list[Problem]:
    if not name:
        return [Problem("MISSING_TOOL_NAME", "The tool has no name.", 'Give it one: name="...".')]
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        hint = "Use 1 to 128 of the characters a-z, A-Z, 0-9, _ and -."
        return [Problem("INVALID_TOOL_NAME", f"Providers do not take {name!r} as the name of a tool.", hint)]
    return []


def reserved_problems(names: Sequence[tuple[str, object]], helpers: Collection[str]) -> Iterator[Problem]:
    """Give what is wrong with the names of the tools that hand in, each with its role, beside those of the helpers."""
    taken: list[object] = [*helpers]
    for role, name in names:
        if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
            yield Problem(
                "INVALID_TOOL_NAME",
                f"The {role} tool's name {name!r} is not 1 to 128 letters, digits, '_' or '-'.",
                "Choose another name.",
            )
        if name in taken:
            yield Problem(
                "RESERVED_TOOL_NAME",
                f"The {role} tool is named {name!r}, as another tool is.",
                "Rename one of the two.",
            )
        taken.append(name)


def _option_problems(tool: AnyTool) -> Iterator[Problem]:
    seconds, chars = tool.timeout_s, tool.max_chars
    if not callable(tool.handler):
        yield Problem("INVALID_HANDLER", f"The handler is {tool.handler!r}, not a function.", "Pass a function.")
    if tool.effect not in (None, "pure", "idempotent", "once"):
        yield Problem("INVALID_EFFECT", f"The effect is {tool.effect!r}.", "Use 'pure', 'idempotent' or 'once'.")
    if tool.permission_kind not in (None, *READY_TOOLS):
        hint = f"There are {', '.join(READY_TOOLS)}."
        yield Problem("UNKNOWN_READY_TOOL", f"It acts as {tool.permission_kind!r}, which is no ready tool.", hint)
    if tool.cache not in (False, "attempt", "run"):
        yield Problem("INVALID_CACHE", f"The cache is {tool.cache!r}.", "Use False, 'attempt' or 'run'.")
    if tool.cache and tool.effect != "pure":
        wrong = f"Results are cached, but the effect is {tool.effect!r}: a call left out would be missed."
        yield Problem("CACHE_NEEDS_PURE", wrong, "Declare effect='pure', or remove cache=.")
    if seconds is not None and not is_amount(seconds):
        yield Problem("INVALID_TIMEOUT", f"The timeout is {seconds!r} seconds.", "Use a number above 0, or None.")
    if chars is not None and not is_count(chars):
        yield Problem("INVALID_MAX_CHARS", f"The longest result is {chars!r} characters.", "Use 1 or more, or None.")
    if tool.thread is True and tool.is_async:
        yield Problem("THREADED_COROUTINE", "It is async and shall run in a thread.", "Remove thread=True.")
    if tool.prepare is not None and not callable(tool.prepare):
        yield Problem(
            "INVALID_PREPARE", f"prepare is {tool.prepare!r}.", "Pass a function of the tool and the context."
        )


def canonical(value: object) -> str:
    """Return a text that is the same for equal values and differs for others.

    JSON with sorted keys for what is JSON. Anything else is written as its class with the content in parentheses, so
    that it cannot be taken for JSON. An object without a text of its own is equal to itself only.
    """
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return json.dumps(value, ensure_ascii=False)
        case _ if is_mapping(value):
            return "{" + ",".join(sorted(f"{canonical(key)}:{canonical(item)}" for key, item in value.items())) + "}"
        case _ if is_list_or_tuple(value):
            return "[" + ",".join(map(canonical, value)) + "]"
        case _:
            return f"{type(value).__qualname__}({_text_of_argument(value)})"


def _text_of_argument(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    if is_set(value):
        return ",".join(sorted(map(canonical, value)))
    if isinstance(value, BaseModel):
        return canonical({**value.__dict__, **(value.__pydantic_extra__ or {})})
    if is_dataclass(value) and not isinstance(value, type):
        return canonical({each.name: getattr(value, each.name) for each in fields(value)})
    if isinstance(value, SecretStr | SecretBytes | Secret):
        return canonical(cast("SecretStr | SecretBytes | Secret[object]", value).get_secret_value())
    return json.dumps(str(value), ensure_ascii=False)
