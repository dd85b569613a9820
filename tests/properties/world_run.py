"""From a `World` to an agent and its run: every function of the user's does what the world says, call by call."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from journeyman import Agent, Callbacks, Message, Model, ModelSettings, Runtime, Text, ToolContext, ToolResult, tool
from journeyman.budget import Budget, Spending
from journeyman.compaction import Compaction
from journeyman.events import Listener
from journeyman.gate import GateRequest
from journeyman.journal import InMemoryJournal
from journeyman.output.output import TEXT, Output, Reflection
from journeyman.tools.tools import AnyTool, CallNext, MiddlewareCall, Tool
from journeyman.window import Shortened
from tests.properties import returns
from tests.properties.acts import Actor, tool_value, use_context
from tests.properties.played_model import HANG_S, PlayedModel, Turn
from tests.properties.world import Site, ToolPlan, World
from tests.support.run_record import AnyAgent, RunRecord, record

LIMITLESS = 10**9
_PAGES_TURNS = (
    Turn(content=(Text("Let me"),), stop_reason="pause_turn", slow_s=0.1),
    Turn(content=(Text("help."),), stop_reason="end_turn", slow_s=0.1),
)


OUTPUTS: dict[str, Output[Any]] = {
    "text": TEXT,
    "model": Output(returns.Report),
    "list": Output(list[int]),
    "optional": Output(returns.Report | None),
}


@dataclass(eq=False)
class WorldRun:
    """One world on its way through a run, or through several."""

    world: World
    model: Model
    actor: Actor = field(default_factory=Actor)
    around: Callable[[Coroutine[Any, Any, RunRecord]], Coroutine[Any, Any, RunRecord]] | None = None
    """What the task of the run does around it."""
    listener: Listener | None = None

    async def run(self) -> RunRecord:
        """Run the world, in a task of its own, and return what was seen of it."""
        world, loop = self.world, asyncio.get_running_loop()
        self.actor.begin()
        replies = self.model.begin() if isinstance(self.model, PlayedModel) else None
        made = self.actor.record = RunRecord(
            agent=self.agent,
            input="What sold best?",
            given=world.given,
            max_attempts=world.max_attempts,
            callbacks=self._callbacks() if world.callbacks else None,
            listener=self.listener,
            watch=world.watch,
            runtime=self._runtime(),
            abort=self.actor.abort,
            replies=replies,
            may_fail_inside=world.may_fail_inside,
        )
        timers = [loop.call_later(stop.at_s, self.actor.stop, stop.how) for stop in world.stops]
        timers.append(loop.call_later(HANG_S, self.actor.release, loop))
        recorded = record(made)
        self.actor.task = loop.create_task(recorded if self.around is None else self.around(recorded))
        await asyncio.wait([self.actor.task])
        for timer in timers:
            timer.cancel()
        self.actor.release(loop)
        await asyncio.sleep(0)
        made.result_of_task(self.actor.task)
        return made

    @cached_property
    def agent(self) -> AnyAgent:
        """Return the agent of the world."""
        world, is_text = self.world, self.world.output == "text"
        return Agent(
            name="hero",
            model=self.model,
            output=self._output(),
            tools=[self._tool(plan) for plan in world.tools],
            validators=[
                self._named(self._site(site, returns.judged), number) for number, site in enumerate(world.validators)
            ],
            limits=replace(
                world.limits,
                request_retries=world.request_retries,
                budget_policies=[_Policy(self.actor, world.policy)] if world.policy else [],
            ),
            settings=ModelSettings(max_tokens=world.max_tokens),
            stop_after=self._stop_after() if is_text else (),
            stop_guard=self._optional(world.stop_guard, returns.guarded) if is_text else None,
            system=self._optional(world.system, returns.prompted) or "",
            prompt=self._optional(world.prompt, returns.prompted),
            track_tokens=world.tracks_tokens,
            **self._more(),
        )

    def _more(self) -> dict[str, Any]:
        world = self.world
        given = {
            "error_prompt": self._optional(world.error_prompt, returns.error_prompted),
            "run_state": self._optional(world.run_state, returns.counted),
            "attempt_state": self._optional(world.attempt_state, returns.zero),
            "final_state": self._optional(world.final_state, returns.projected),
            "on_message": self._optional(world.on_message, returns.nothing),
        }
        several = {
            "gate": _Gate(self.actor, world.gate) if world.gate else None,
            "tool_middleware": [_middleware(self.actor, site) for site in world.tool_middleware],
            "compaction": Compaction(
                [_Strategy(self.actor, world.compaction)] if world.compaction else [],
                transform_messages=self._optional(world.transform_messages, returns.converted),
            ),
        }
        return {name: value for name, value in {**given, **several}.items() if value is not None}

    def _output(self) -> Output[Any]:
        plan, output = self.world.reflection, OUTPUTS[self.world.output]
        if output is TEXT:
            return output
        output = replace(output, reminder=self.world.reminder, feedback_role=self.world.feedback_role)
        if plan is None:
            return output
        reflection = Reflection[Any](
            self._site(plan.site, returns.shown),
            require_clean=plan.require_clean,
            submit_alone=plan.submit_alone,
            early_submit=plan.early_submit,
        )
        return replace(output, reflection=reflection)

    def _stop_after(self) -> Any:  # noqa: ANN401 - names or a predicate
        given = self.world.stop_after
        if isinstance(given, Site):
            return self._site(given, returns.stops)
        names = {plan.name for plan in self.world.tools}
        return tuple(name for name in given if name in names)

    def _site(self, site: Site, give: Callable[..., object]) -> Callable[..., Any]:
        return self.actor.function(site, give)

    def _optional(self, site: Site | None, give: Callable[..., object]) -> Callable[..., Any] | None:
        return None if site is None else self._site(site, give)

    @staticmethod
    def _named(function: Callable[..., Any], number: int) -> Callable[..., Any]:
        function.__name__ = f"check_{number}"
        return function

    def _callbacks(self) -> Callbacks:
        sites = self.world.callbacks
        return Callbacks(**{name: self._site(site, returns.nothing) for name, site in sites.items()})

    def _runtime(self) -> Runtime:
        world = self.world
        approve: Any = self.actor.coroutine_function(world.approve, returns.decided) if world.approve else None
        return Runtime(
            journal=InMemoryJournal() if world.is_journalled else None,
            gate=_Gate(self.actor, world.runtime_gate) if world.runtime_gate else None,
            approver=approve,
            budget=Budget(tokens=LIMITLESS, scope="runtime") if world.has_runtime_budget else None,
        )

    def _tool(self, plan: ToolPlan) -> AnyTool:
        next_act = self.actor.next_of(plan.acts)
        loop = asyncio.get_running_loop()

        async def asynchronous(value: int = 0, *, context: ToolContext) -> object:
            act = next_act()
            if act.kind == "nested run":
                return await self._nested_run(context)
            await self.actor.do_async(act)
            use_context(act, context)
            return tool_value(act)

        def sync(value: int = 0, *, context: ToolContext) -> object:
            act = next_act()
            if plan.form == "thread":
                self.actor.do_in_thread(act, loop)
            else:
                self.actor.do(act)
            use_context(act, context)
            return tool_value(act)

        return _made_tool(plan, asynchronous if plan.form == "async" else sync)

    @cached_property
    def _page(self) -> AnyAgent:
        return Agent(name="page", model=PlayedModel(_PAGES_TURNS))

    async def _nested_run(self, context: ToolContext) -> str:
        """Run another agent inside the tool, with the same signal; whatever cancels the tool may cancel it."""
        model = PlayedModel(_PAGES_TURNS)
        inner = RunRecord(agent=self._page, input="Help.", abort=context.abort, runtime=Runtime(model=model))
        inner.replies, inner.was_cancelled, inner.is_nested = model.replies, True, True
        if self.actor.record is not None:
            self.actor.record.inside.append(inner)
        await record(inner)
        if inner.raised is not None:
            raise inner.raised
        return f"the page says {inner.result!r}"


def _made_tool(plan: ToolPlan, handler: Callable[..., object]) -> AnyTool:
    options: dict[str, Any] = {
        "parallel": plan.parallel,
        "cache": plan.cache,
        "effect": "pure" if plan.cache else None,
        "timeout_s": plan.timeout_s,
        "max_chars": plan.max_chars,
        "thread": None if plan.form == "async" else plan.form == "thread",
    }
    if not plan.is_raw:
        return tool(handler, name=plan.name, description="A tool of these tests.", **options)
    schema = {"type": "object", "properties": {"value": {"type": "integer"}}}
    return Tool(plan.name, "A tool of these tests.", cast("Any", schema), _raw(handler), **options)


def _raw(handler: Callable[..., object]) -> Callable[..., object]:
    if inspect.iscoroutinefunction(handler):

        async def asynchronous(arguments: dict[str, object], context: ToolContext) -> object:
            return await handler(context=context)

        return asynchronous

    def sync(arguments: dict[str, object], context: ToolContext) -> object:
        return handler(context=context)

    return sync


class _Gate:
    def __init__(self, actor: Actor, site: Site) -> None:
        self._function = actor.coroutine_function(site, returns.decided)

    async def decide(self, request: GateRequest) -> Any:  # noqa: ANN401 - a gate may give garbage
        return await self._function(request)


class _Policy:
    name = "patience"

    def __init__(self, actor: Actor, site: Site) -> None:
        self._function = actor.function(Site("sync", site.acts), returns.exceeded)

    def check(self, spent: Spending) -> Any:  # noqa: ANN401
        return self._function(spent)


class _Strategy:
    name = "nothing"

    def __init__(self, actor: Actor, site: Site) -> None:
        self._function = actor.coroutine_function(site, returns.nothing)

    async def view(self, messages: Sequence[Message], *, excess_tokens: int) -> Shortened:
        await self._function()
        return Shortened(messages=messages)


def _middleware(actor: Actor, site: Site) -> Any:  # noqa: ANN401
    next_act = actor.next_of(site.acts)

    async def middleware(call: MiddlewareCall, proceed: CallNext) -> object:
        act = next_act()
        await actor.do_async(act)
        match act.kind:
            case "answer":
                return ToolResult("the middleware answers")
            case "error result":
                return ToolResult("the middleware refuses", is_error=True)
            case "garbage":
                return None
            case "bad rewrite":
                return ToolResult(cast("Any", None))
            case "twice":
                await proceed(call)
                return await proceed(call)
            case _:
                return await proceed(call)

    return middleware
