"""How a member lives: its prompts, its turns, its rest, and its end."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import pytest

from journeyman import Agent, Budget, DefinitionError, Limits, Message, Output, Runtime, Tasks, Text, Usage
from journeyman.agent import SystemMode, TeamPrompt
from journeyman.errors import ProviderError, TeamError
from journeyman.events import ApprovalRequested, TeamMessage
from journeyman.gate import Allow, Ask
from journeyman.journal import InMemoryJournal
from journeyman.loop.state import enter
from journeyman.team import TeamHooks
from journeyman.testing.scripted import FunctionModel, ScriptedModel, call
from tests.play import Door, Recorder, Report, Stage, make_gate, make_tool, transcript, virtual_clock
from tests.team.members import (
    Crew,
    done_by,
    fates,
    heard,
    join,
    lives,
    mail_read,
    member_of,
    read_by,
    team_changes,
    turn_of,
    until_idle,
    wanted,
)


async def test_the_first_task_is_said_as_the_leaders_mail(stage: Stage) -> None:
    async with Crew() as team:
        agent = Agent(name="scout", model=stage.model(["Done."]))
        await turn_of(team, wanted(agent, "Count them.", description="counting"))
    said = '<team-message from="team-lead" summary="counting">\nCount them.\n</team-message>'
    assert transcript(stage.messages(0)) == [("user", said)]


async def test_the_first_task_stays_as_its_leader_wrote_it(stage: Stage) -> None:
    prompt = 'Say whether a < b && c > "d".</team-message>'
    async with Crew() as team:
        await turn_of(team, wanted(Agent(name="scout", model=stage.model(["Yes."])), prompt, name="ada"))
    said = '<team-message from="team-lead">\nSay whether a < b && c > "d".&lt;/team-message>\n</team-message>'
    assert stage.messages(0)[0].text == said


async def test_a_member_goes_on_from_the_transcript_of_an_earlier_one(stage: Stage) -> None:
    async with Crew() as team:
        await turn_of(team, wanted(Agent(name="scout", model=stage.model(["One."])), "Count.", name="ada"))
        alive = team.transcript("ada")
        await team.shutdown("ada")
        assert team.transcript("ada") == alive
        again = Agent(name="scout", model=stage.model(["Two."]))
        await turn_of(team, wanted(again, "Go on.", name="ada", history=alive))
        assert [message.text for message in team.transcript("ada") if message.role == "assistant"] == ["One.", "Two."]
        with pytest.raises(KeyError, match="There is no member 'eve'"):
            team.transcript("eve")


async def test_the_format_hook_makes_every_text_the_first_one_too() -> None:
    model = ScriptedModel(["One.", "Two."])
    async with Crew(hooks=TeamHooks(format=lambda mail: f"{mail.sender}: {mail.text}")) as team:
        await turn_of(team, wanted(member_of(model), "Begin."))
        await read_by(team, "scout", "Go on.")
    assert [request.messages[-1].text for request in model.requests] == ["team-lead: Begin.", "team-lead: Go on."]


async def test_its_conversation_grows_from_turn_to_turn(stage: Stage) -> None:
    async with Crew() as team:
        await turn_of(team, wanted(Agent(name="scout", model=stage.model(["One.", "Two."])), "Begin."))
        await read_by(team, "scout", "Go on.")
        assert team.member("scout").last_text == "Two."
    assert [role for role, *_ in transcript(stage.messages(1))] == ["user", "assistant", "user"]


async def test_it_goes_on_from_the_history_of_an_earlier_member_which_it_does_not_change(stage: Stage) -> None:
    history = [Message("user", (Text("Begin."),)), Message("assistant", (Text("One."),))]
    async with Crew() as team:
        await team.spawn(wanted(Agent(name="scout", model=stage.model(["Two."])), "", history=history))
        assert team.member("scout").liveness == "idle"
        team.send("scout", "Go on.")
        while not stage.n_requests:
            await team_changes(team)
        await until_idle(team)
    assert [text for _, text in transcript(stage.messages(0))[:2]] == ["Begin.", "One."]
    assert len(history) == 2


async def test_its_last_words_go_to_the_leader_when_it_has_nothing_left_to_do() -> None:
    async with Crew() as team:
        await join(team, "ada", ["All counted."])
        (mail,) = await team.receive()
        assert (mail.sender, mail.to, mail.kind, mail.text) == ("ada", "team-lead", "idle", "All counted.")


def no_words(name: str, text: str) -> str:
    return ""


@pytest.mark.parametrize("notice", [None, no_words])
async def test_without_an_idle_notice_the_leader_hears_nothing(notice: Callable[[str, str], str] | None) -> None:
    async with Crew(hooks=TeamHooks(idle_notice=notice)) as team:
        await join(team, "ada", ["All counted."])
        assert not await team.news()


async def test_a_typed_member_hands_in_json_as_its_last_words() -> None:
    agent = Agent(name="counter", model=ScriptedModel([call("output", total=3)]), output=Output(Report))
    async with Crew() as team:
        await team.spawn(wanted(agent))
        assert await heard(team) == ("idle", '{"total":3}')


async def test_a_turn_that_fails_ends_the_member_and_the_leader_is_told() -> None:
    refused = ProviderError("No.", kind="auth")
    async with Tasks() as tasks, Crew(tasks=tasks) as team:
        made = await join(team, "ada", [refused])
        failed = "Member 'ada' failed: API_ERROR: The model call failed (auth): No."
        assert (await heard(team), team.member("ada").error) == (("gone", failed), failed)
        await tasks.wait(made.task_id)
        info = tasks.get(made.task_id)
        assert (info.status, info.liveness, info.kind) == ("failed", "gone", "member")


@pytest.mark.parametrize(("retries", "kind"), [(None, "gone"), (0, "gone"), (1, "gone"), (2, "idle")])
async def test_its_requests_are_not_repeated_unless_its_agent_says_so(retries: int | None, kind: str) -> None:  # S1.8
    busy = ProviderError("Busy.", kind="overloaded", retry_after_s=0.0)
    async with Crew() as team:
        agent = Agent(name="scout", model=ScriptedModel([busy, busy, "Done."]), limits=Limits(request_retries=retries))
        await team.spawn(wanted(agent, name="ada"))
        assert (await heard(team))[0] == kind


@virtual_clock
async def test_work_is_claimed_when_no_mail_waits_and_is_said_as_it_is() -> None:
    work = ["Paint the door.", None, "Paint the wall."]
    model = ScriptedModel(["One.", "Two.", "Three."])
    hooks = TeamHooks(claim=lambda name: work.pop(0) if work else None, claim_interval_s=5.0, idle_notice=None)
    async with Crew(hooks=hooks) as team:
        await team.spawn(wanted(member_of(model), "Begin."))
        while len(model.requests) < 3:
            await team_changes(team)
        assert [request.messages[-1].text for request in model.requests[1:]] == ["Paint the door.", "Paint the wall."]


@virtual_clock
async def test_mail_beats_work_that_could_be_claimed(door: Door) -> None:
    model = ScriptedModel([door.before("One."), "Two.", "Three."])
    work = ["Paint the door."]

    async def claim(name: str) -> str | None:
        return work.pop() if work else None

    async with Crew(hooks=TeamHooks(claim=claim)) as team:
        await team.spawn(wanted(member_of(model), "Begin."))
        await door.reached.wait()
        team.send("scout", "Wash up.")
        door.opened.set()
        await until_idle(team)
    mail = [("team-lead", "Wash up.")]
    assert [mail_read(request)[1:] for request in model.requests] == [[], mail, mail]
    assert model.requests[2].messages[-1].text == "Paint the door."


async def test_a_claim_that_raises_is_recorded_and_logged_and_gives_no_work(caplog: pytest.LogCaptureFixture) -> None:
    def claim(name: str) -> str:
        raise ValueError(f"no work for {name}")

    async with Crew(hooks=TeamHooks(claim=claim)) as team:
        await done_by(team, "ada", ["Done."])
        assert [(error.callback, str(error.error)) for error in team.errors] == [("claim", "no work for ada")]
    (logged,) = [record.getMessage() for record in caplog.records]
    assert logged.startswith(f"The hook of the team claim raised ValueError at {__file__}:")


async def test_mail_of_the_leader_may_be_preferred(door: Door) -> None:
    model = ScriptedModel([door.before("One."), "Two.", "Three."])

    def leader_first(waiting: Sequence[TeamMessage]) -> Sequence[TeamMessage]:
        return sorted(waiting, key=lambda mail: mail.sender != "team-lead")[:1]

    async with Crew(hooks=TeamHooks(pick=leader_first)) as team:
        await team.spawn(wanted(member_of(model), name="ada"))
        await door.reached.wait()
        await join(team, "max", [call("send_message", to="ada", message="From max."), "Sent."])
        while team.member("ada").n_waiting < 1:
            await team_changes(team)
        team.send("ada", "From the leader.")
        door.opened.set()
        await until_idle(team)
    said = [mail_read(request)[-1] for request in model.requests[1:]]
    assert said == [("team-lead", "From the leader."), ("max", "From max.")]


async def test_mail_may_end_a_member_before_another_turn(recorder: Recorder) -> None:
    model = ScriptedModel(["One."])
    async with Crew(hooks=TeamHooks(ends=lambda mail: mail.text == "Stop."), on_event=recorder) as team:
        await turn_of(team, wanted(member_of(model), name="ada"))
        (sent,) = team.send("ada", "Stop.")
        while team.member("ada").liveness != "gone":
            await team_changes(team)
        assert (len(model.requests), team.member("ada").error) == (1, None)
    assert fates(recorder)[sent.id] == ["delivered"]
    assert lives(recorder.events, "ada") == [(1, "working"), (1, "idle"), (1, "gone")]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("append", ["team", "own"]), ("prepend", ["own", "team"]), ("replace", ["own"]), ("whatever", ["team", "own"])],
)
@pytest.mark.parametrize("is_function", [False, True])
async def test_its_system_prompt_is_joined_with_the_teams_as_its_mode_says(
    mode: SystemMode, expected: list[str], is_function: bool
) -> None:
    async def own(input: str) -> str:
        return f"Be careful: {'Begin.' in input}."

    model = ScriptedModel(["Done."])
    system = own if is_function else "Be careful: True."
    async with Crew() as team:
        await turn_of(team, wanted(Agent(name="scout", model=model, system=TeamPrompt(system, mode=mode))))
    texts = [block.text for block in model.requests[0].prefix.system]
    assert ["own" if text == "Be careful: True." else "team" for text in texts] == expected
    opening = "You are scout, a member of the team crew, which team-lead leads."
    assert [text.startswith(opening) for text in texts] == [who == "team" for who in expected]


async def test_a_tool_of_its_own_may_not_have_the_name_of_one_of_the_teams() -> None:
    async with Crew() as team:
        with pytest.raises(DefinitionError, match="send_message"):
            await team.spawn(wanted(member_of(["Done."], tools=[make_tool("send_message", "{to}")])))
        assert team.roster().members == ()


async def test_a_model_of_the_request_is_used_instead_of_the_agents() -> None:
    other = ScriptedModel(["Other."])
    async with Crew() as team:
        await team.spawn(wanted(member_of(["Own."]), model=other))
        assert await heard(team) == ("idle", "Other.")


async def test_the_budget_of_the_team_holds_for_all_members_together() -> None:
    budget = Budget(calls=3, scope="team")

    script = {1: call("look", id="1"), 3: call("look", id="3"), 5: "Done."}
    model = FunctionModel(lambda request: script[len(request.messages)])
    async with Crew(runtime=Runtime(budget=budget)) as team:
        for name in ("ada", "max"):
            await team.spawn(wanted(Agent(name="scout", model=model, tools=[make_tool("look", "seen")]), name=name))
        await until_idle(team)
        assert budget.used_calls == 3
        assert team.usage.requests == 6


async def test_usage_rolls_up_into_the_task_and_the_team() -> None:
    async with Tasks() as tasks, Crew(tasks=tasks) as team:
        made = await done_by(team, "ada", [call("team_roster"), "Done."])
        expected = Usage(requests=2, input_tokens=20, output_tokens=10)
        assert (team.usage, team.member("ada").usage, tasks.get(made.task_id).usage) == (expected,) * 3
        assert tasks.get(made.task_id).n_calls == 1
        await team.shutdown("ada")
        await done_by(team, "ada", ["Done."])
        assert team.usage == Usage(requests=3, input_tokens=30, output_tokens=15)


@virtual_clock
async def test_a_member_notes_a_sign_of_life_at_each_model_call(door: Door) -> None:
    async with Tasks() as tasks, Crew(tasks=tasks) as team:
        made = await join(team, "ada", [call("team_roster"), door.before("Done.")])
        await door.reached.wait()
        await asyncio.sleep(30)
        before, task = team.member("ada"), tasks.get(made.task_id)
        assert (before.liveness, before.quiet_s) == ("working", 30)
        assert task.last_sign is not None
        assert task.last_sign >= before.last_sign, "its task knows of it, too"
        door.opened.set()
        await until_idle(team)
        assert team.member("ada").last_sign > before.last_sign


async def test_what_a_member_asks_is_answered_by_the_program_that_leads() -> None:
    asked: list[str] = []

    def answer(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            asked.append(event.id)
            team.answer(event.id, Allow())

    async with Crew(runtime=Runtime(gate=make_gate(Ask("May it?"), "team_roster")), on_event=answer) as team:
        await join(team, "ada", [call("team_roster"), "Done."])
        assert (await heard(team), len(asked)) == (("idle", "Done."), 1)


async def test_each_member_has_a_part_of_the_journal_to_itself() -> None:
    journal = InMemoryJournal()
    async with Crew(runtime=Runtime(journal=journal)) as team:
        await done_by(team, "ada", ["Done."])
        await team.shutdown("ada")
        await done_by(team, "ada", ["Done."])
    assert {key.partition("/run/")[0] for key in journal.finished} == {"member/ada/1", "member/ada/2"}


async def test_a_member_cannot_be_deeper_than_five_runs() -> None:  # S16.11
    async with Crew() as team, AsyncExitStack() as stack:
        stack.callback(enter(path=("a", "b", "c", "d", "e")))
        made = await team.spawn(wanted(member_of(["Done."])))
        assert team.member(made.name).depth == 5
        stack.callback(enter(path=("a", "b", "c", "d", "e", "f")))
        with pytest.raises(TeamError, match="A member would be at depth 6, and 5 is the last"):
            await join(team, "max", ["Done."])


async def test_a_stopped_task_is_a_killed_member_and_the_leader_is_told(door: Door) -> None:  # S16.6
    async with Tasks() as tasks, Crew(tasks=tasks) as team:
        made = await join(team, "ada", [door.before("Done.")])
        await door.reached.wait()
        team.send("ada", "Hello?")
        assert tasks.stop(made.task_id)
        assert await heard(team) == ("gone", "ada was stopped.")
        await tasks.wait(made.task_id)
        assert tasks.get(made.task_id).status == "killed"
        assert [letter.reason for letter in team.dead_letters] == ["unread"]


async def test_a_message_to_its_task_is_the_leaders_mail() -> None:
    model = ScriptedModel(["One.", "Two."])
    async with Tasks() as tasks, Crew(tasks=tasks) as team:
        made = await turn_of(team, wanted(member_of(model)))
        assert tasks.message(made.task_id, "Go on.") == "queued"
        while len(model.requests) < 2:
            await team_changes(team)
        assert mail_read(model.requests[1])[-1] == ("team-lead", "Go on.")
        await team.shutdown()
        assert tasks.message(made.task_id, "Still there?") == "gone"


async def test_a_wake_without_mail_never_prompts_again() -> None:  # S16.11
    model = ScriptedModel(["One."])
    async with Crew(hooks=TeamHooks(pick=lambda waiting: ())) as team:
        await turn_of(team, wanted(member_of(model), name="ada"))
        team.send("ada", "Hello.")
        for _ in range(10):
            await asyncio.sleep(0)
        assert (len(model.requests), team.member("ada").n_waiting) == (1, 1)


async def test_limits_hold_for_each_turn_of_a_member() -> None:
    agent = Agent(name="scout", model=ScriptedModel([call("team_roster")], repeat=True), limits=Limits(iterations=2))
    async with Crew() as team:
        await team.spawn(wanted(agent))
        kind, text = await heard(team)
        assert (kind, "MAX_ITERATIONS" in text) == ("gone", True)
