"""The output of an agent, compiled: the ways to hand in, each with its tool, its check, and the function behind it.

What cannot work together is refused here, when the agent is defined, and the refusal says why.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from inspect import isroutine
from typing import Any, Final, Literal, TypeAlias, get_args

from typing_extensions import TypeIs

from journeyman.definition.data import lazy_dataclass
from journeyman.definition.json_numbers import write_json
from journeyman.definition.narrowing import is_partial
from journeyman.definition.problems import is_one_of as one_of
from journeyman.definition.problems import raise_problems, value_problems
from journeyman.errors import DefinitionError, Problem, count
from journeyman.model import UNKNOWN, Facts, OutputFormat, ToolSpec
from journeyman.output.output import TEXT, OneOf, Output, OutputMode, Reflection, SubmitTool
from journeyman.tools.context import ToolContext
from journeyman.tools.deps import function_or_deps_problem, tool_deps_problems
from journeyman.tools.schema import REQUIRED, OutputSchema, output_schema, take_from_prose
from journeyman.tools.signature import return_type
from journeyman.tools.strict import strict_problems
from journeyman.tools.tools import AnyTool, Tool, canonical, reserved_problems, tool, tool_problems
from journeyman.types import Effect, JsonObject, Text

_OUTPUT: Final = "Give the final output with this tool."
_DRAFT: Final = "Propose the output with this tool; you will see it as others would, and may propose it again."
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOTHING: Final[JsonObject] = {"type": "object", "properties": {}, "additionalProperties": False}

AnyOutput: TypeAlias = Output[Any, Any] | OneOf[Any, Any]


@lazy_dataclass(frozen=True)
class ArgumentsSchema:
    """The arguments of a function that makes the output, as a dict: an `OutputSchema` as far as it is asked."""

    function: AnyTool
    is_in_prose: bool = False

    @property
    def is_wrapped(self) -> bool:
        return False

    @property
    def input_schema(self) -> JsonObject:
        return self.function.spec.input_schema

    @property
    def may_be_quoted(self) -> bool:
        return self.function.may_be_quoted

    def parse(self, input_json: str | bytes) -> dict[str, object]:
        """Return the arguments that the model wrote.

        Raises:
            InvalidArguments: they do not fit; it lists every issue.
        """
        return self.function.parse(take_from_prose(input_json, self.function.name) if self.is_in_prose else input_json)

    def dump(self, value: object) -> bytes:
        """Return a text of the arguments, to compare them with others."""
        return canonical(value).encode("utf-8", "surrogatepass")


@lazy_dataclass(frozen=True, kw_only=True)
class OutputMember:
    """One way to hand in an output."""

    name: str
    """The name of its tool."""
    output: Output[Any, Any]
    """Its definition."""
    schema: OutputSchema[Any] | ArgumentsSchema
    """Checks what the model hands in."""
    spec: ToolSpec
    reflection: Reflection[Any, Any] | None
    function: AnyTool | None = None
    """Makes the output of what was handed in; None: that is the output."""
    kind: Any
    """The type of the output."""
    made: OutputSchema[Any]
    """The same, compiled."""

    def in_words(self) -> OutputMember:
        """Return this for an answer in which the JSON may have words around it."""
        return replace(self, schema=replace(self.schema, is_in_prose=True))


@lazy_dataclass(frozen=True, kw_only=True)
class OutputPlan:
    """The output of an agent, compiled; of an agent that answers with text, nothing."""

    mode: OutputMode | Literal["auto"] | None = None
    """None: the agent answers with text."""
    kind: Any = None
    """The type of what is handed in."""
    schema: OutputSchema[Any] | None = None
    """The same, compiled."""
    members: Mapping[str, OutputMember] = field(default_factory=dict[str, OutputMember])
    """By the names of their tools."""
    takes_text: bool = False
    """Whether the text with which the model ends its turn is an output, too."""
    submit: SubmitTool | None = None

    @property
    def member(self) -> OutputMember:
        """The one way there is, where the output may be handed in without a tool."""
        return next(iter(self.members.values()))

    @property
    def functions(self) -> tuple[AnyTool, ...]:
        """The functions that make outputs."""
        return tuple([each.function for each in self.members.values() if each.function is not None])

    @property
    def is_what_is_written(self) -> bool:
        """True when what the model hands in says by itself what the output is."""
        return len(self.members) == 1 and not self.takes_text and self.member.function is None

    def hands_in(self, name: str) -> bool:
        """Tell whether a tool of this name hands in."""
        return name in self.members or (self.submit is not None and name == self.submit.name)

    def function_of(self, name: str) -> AnyTool | None:
        """Return the function that a call of this name leads to, perhaps through submit; None if there is none."""
        if self.submit is not None and name == self.submit.name:
            drafts = [each.function for each in self.members.values() if each.reflection is not None]
            return next((each for each in drafts if each is not None), None)
        return self.members[name].function if name in self.members else None

    def specs(self, helpers: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """Return all tools as the model sees them: output, helpers in order, submit."""
        own = [each.spec for each in self.members.values()]
        if self.submit is None:
            return (*own, *helpers)
        submit = ToolSpec(name=self.submit.name, description=self.submit.description, input_schema=_NOTHING)
        return (*own, *helpers, submit)

    @property
    def format(self) -> OutputFormat:
        """The form of a native output, as a provider is asked for it."""
        member = self.member
        about, schema = member.output.description.strip(), member.schema.input_schema
        return OutputFormat(name=member.name, description=about, schema=schema, strict=member.output.strict)

    @property
    def words(self) -> Text:
        """The text that asks the model for a prompted output, at the end of its system prompt."""
        member = self.member
        about = f"{member.output.description.strip()}\n" if member.output.description.strip() else ""
        rule = "End your work with one JSON object, and no words around it. It must fit this JSON Schema:"
        return Text(f"{about}{rule}\n{write_json(member.schema.input_schema).decode()}")


def choose_mode(facts: Facts) -> OutputMode:
    """Return the first mode that a model can, as far as its facts tell: tool, native, prompted."""
    if facts.sees_tools is not False:
        return "tool"
    return "native" if facts.native_output else "prompted"


def compile_output(output: AnyOutput) -> OutputPlan:
    """Compile what an agent hands in.

    Raises:
        DefinitionError: a type cannot be described, or a function cannot make an output.
    """
    if output is TEXT:
        return OutputPlan()
    named = _named_members(output)
    members = {name: _compile_member(name, each) for name, each in named}
    takes_text = isinstance(output, OneOf) and output.takes_text
    kinds = [*[each.kind for each in members.values()], *[str] * takes_text]
    one = next(iter(members.values())).made if len(kinds) == 1 else None
    kind: Any = reduce(lambda union, each: union | each, kinds)
    submits = [each.reflection.submit for each in members.values() if each.reflection is not None]
    return OutputPlan(
        mode=named[0][1].mode,
        kind=kind,
        schema=output_schema(kind) if one is None else one,
        members=members,
        takes_text=takes_text,
        submit=submits[0] if submits else None,
    )


def _named_members(output: AnyOutput) -> list[tuple[str, Output[Any, Any]]]:
    if isinstance(output, OneOf):
        return [(_own_name(each, "output_") if each.name is None else each.name, each) for each in output.members]
    own = _own_name(output) if _is_function(output.type) else "output"
    return [(own if output.name is None else output.name, output)]


def _own_name(output: Output[Any, Any], prefix: str = "") -> str:
    """Return the name of a function, or that of a type behind a prefix; empty if it has none."""
    given: Any = output.type
    if _is_tool(given):
        return given.name
    while is_partial(given):
        given = given.func
    own = getattr(given, "__name__", "") if isroutine(given) or isinstance(given, type) else ""
    return "" if own in ("", "<lambda>") else own if isroutine(given) else f"{prefix}{own}"


def _is_tool(given: object) -> TypeIs[AnyTool]:
    return isinstance(given, Tool)


def _is_function(given: object) -> bool:
    return _is_tool(given) or isroutine(given) or is_partial(given)


def _compile_member(name: str, output: Output[Any, Any]) -> OutputMember:
    function, reflection = _function_of(output, name), output.reflecting()
    kind: Any = _kind_of(output)
    made = output_schema(kind, name=name)
    schema = made if function is None else ArgumentsSchema(function)
    is_strict = output.strict or (function is not None and function.strict)
    if is_strict and output.mode == "tool":
        raise_problems(f"The type of {name!r}", strict_problems(schema.input_schema))
    about = output.description.strip() or (function.description if function is not None else "")
    about = about or (_DRAFT if reflection else _OUTPUT)
    spec = ToolSpec(name=name, description=about, input_schema=schema.input_schema, strict=is_strict)
    return OutputMember(
        name=name,
        output=output,
        schema=schema,
        spec=spec,
        reflection=reflection,
        function=function,
        kind=kind,
        made=made,
    )


def _function_of(output: Output[Any, Any], name: str) -> AnyTool | None:
    given: Any = output.type
    if not _is_function(given):
        return None
    if not _is_tool(given):
        return tool(given, name=name, effect=output.effect)
    return replace(given, name=name, effect=output.effect or given.effect)


def _kind_of(output: Output[Any, Any]) -> object:
    """Return the type of what is handed in: of a function, what it says that it returns.

    Raises:
        DefinitionError: it does not say.
    """
    given: Any = output.type
    if not _is_function(given):
        return given
    function = given.handler if _is_tool(given) else given
    kind, name = return_type(function, ToolContext), _own_name(output)
    if kind is REQUIRED:
        wrong = f"The function {name!r} does not say which type it returns, or that cannot be found."
        hint = "Annotate it, as in -> Booking, with a type that is there where the function is defined."
        raise_problems(f"The function {name!r}", [Problem("NO_RETURN_TYPE", wrong, hint)])
    return kind


_EFFECTS: Final = (one_of(None, *get_args(Effect)), "Pass 'pure', 'idempotent' or 'once'.")
_FEEDBACK: Final = (one_of("result", "text"), "Pass 'result' or 'text'.")
_NOT_FOR_OUTPUTS: Final = ("cache", "deferred", "is_proxy", "journals_itself", "provider_schemas", "prepare")


@lazy_dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The rest of an agent's definition, as far as its output must fit to it."""

    deps: object
    input: object
    model: object
    helpers: Collection[str]
    """The names of its tools."""
    has_validators: bool


def output_problems(output: AnyOutput, around: Surroundings) -> Iterator[Problem]:
    """Give what is wrong with the output of an agent."""
    members = output.members if isinstance(output, OneOf) else (output,)
    for each in members:
        yield from value_problems("INVALID_SECTION", "Output.feedback_role", each.feedback_role, _FEEDBACK)
        yield from value_problems("INVALID_EFFECT", "Output.effect", each.effect, _EFFECTS)
        yield from _member_problems(each, around)
    if isinstance(output, OneOf):
        yield from _choice_problems(output)
    elif output.mode != "tool":
        yield from _text_problems(output, around.model)
        return
    named = _named_members(output)
    submits = {reflection.submit for each in members if (reflection := each.reflecting()) is not None}
    for submit in submits:
        if not submit.description.strip():
            yield Problem("EMPTY_DESCRIPTION", "The submit tool has a blank description.", "Say when to call it.")
    if len(submits) > 1:
        wrong = f"The reflections of a OneOf have {len(submits)} different submit tools."
        yield Problem("DIFFERENT_SUBMITS", wrong, "Give all of them the same SubmitTool, or none.")
    # Of two members with one name is told above.
    own = [("output", name) for name in dict.fromkeys(name for name, _ in named)]
    yield from reserved_problems([*own, *[("submit", each.name) for each in submits]], around.helpers)


def _member_problems(output: Output[Any, Any], around: Surroundings) -> Iterator[Problem]:
    what = "arguments" if _is_function(output.type) else "output"
    if (reflection := output.reflecting()) is not None:
        yield from function_or_deps_problem(
            around.deps, "The reflection", reflection.handler, "a draft", code="INVALID_REFLECTION"
        )
    for each in output.validators:
        yield from function_or_deps_problem(around.deps, "A validator", each, f"the {what}", code="INVALID_VALIDATOR")
    if not _is_function(output.type):
        if output.effect is not None:
            wrong = f"Output.effect is {output.effect!r}, but its type is no function, which could have an effect."
            yield Problem("INVALID_EFFECT", wrong, "Leave it out.")
        return
    name = _own_name(output)
    if around.has_validators:
        wrong = f"The validators of the agent would judge what {name!r} returns, when it has run already."
        yield Problem("VALIDATORS_AFTER_FUNCTION", wrong, "Check its arguments: Output(…, validators=[…]).")
    given: Any = output.type
    if _is_tool(given):
        yield from _tool_problems(given)
    try:
        function = _function_of(output, output.name or name or "output")
    except DefinitionError as error:
        yield from error.problems
    else:
        yield from () if function is None else tool_deps_problems(function, deps=around.deps, input=around.input)


def _tool_problems(function: AnyTool) -> Iterator[Problem]:
    yield from tool_problems(function)
    for name in _NOT_FOR_OUTPUTS:
        if value := getattr(function, name):
            wrong = (
                f"The tool {function.name!r} makes the output, and has {name}={value!r}, which only a helper can have."
            )
            yield Problem("INVALID_OUTPUT_FUNCTION", wrong, "Leave it out, or pass the function itself.")


def _choice_problems(output: OneOf[Any, Any]) -> Iterator[Problem]:
    n = len(output.members) + output.takes_text
    if n < 2 or not output.members:
        yield Problem("NO_CHOICE", f"OneOf has {count(n, 'member')}.", "Pass two or more, or use Output(…) or nothing.")
    for member in output.members:
        if member.mode != "tool":
            wrong = f"A member of OneOf is {member.mode}: without a tool, nothing tells which of them is handed in."
            yield Problem("CHOICE_WITHOUT_TOOLS", wrong, f"Use Output(A | B, mode={member.mode!r}), or mode='tool'.")
        if member.reminder and output.takes_text:
            wrong = "A text is an output, so there is nothing to remind a model of that answers with text."
            yield Problem("TEXT_REMINDER", wrong, "Remove reminder, or str.")
    for name, times in Counter(name for name, _ in _named_members(output)).items():
        if times > 1:
            what = f"are named {name!r}" if name else "have no name"
            hint = "Give each its own: Output(…, name='…')."
            yield Problem("DUPLICATE_OUTPUT_NAME", f"{times} members of OneOf {what}.", hint)


def _text_problems(output: Output[Any, Any], model: object) -> Iterator[Problem]:
    """Yield the problems of an output that is no tool, or may be none, as far as the model is known."""
    mode: str = output.mode
    if mode not in ("native", "prompted", "auto"):
        hint = "Pass 'tool', 'native', 'prompted' or 'auto'."
        yield Problem("INVALID_OUTPUT_MODE", f"Output.mode is {mode!r}.", hint)
        return
    may_be = "may be native or prompted" if mode == "auto" else f"is {mode}"
    if output.reflection is not None:
        wrong = f"The output {may_be}, so it cannot be reflected on: the model's answer is final."
        yield Problem("NATIVE_REFLECTION", wrong, "Remove reflection, or use mode='tool'.")
    if output.reminder:
        wrong = f"The output {may_be}, so there is no tool that a reminder could name."
        yield Problem("NATIVE_REMINDER", wrong, "Remove reminder, or use mode='tool'.")
    if output.strict and mode != "native":
        wrong = f"The output {may_be}, so no provider sees its schema, and none can guarantee it."
        yield Problem("PROMPTED_STRICT", wrong, "Remove strict, or use mode='native'.")
    name = _named_members(output)[0][0]
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance] - users' code may not be typed
        wrong = f"The output's name {name!r} is not 1 to 64 letters, digits, '_' or '-'."
        yield Problem("INVALID_NAME", wrong, "Give it a name such as 'report'.")
    facts: Facts = getattr(model, "facts", UNKNOWN)
    if mode == "native" and facts.native_output is False:
        named = f"{getattr(model, 'provider', '')}:{getattr(model, 'name', '')}"
        yield Problem("NO_NATIVE_OUTPUT", f"The model {named} has no native output.", "Use mode='tool', or 'auto'.")
