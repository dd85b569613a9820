"""A chat that leads a team: it makes members by its calls, hears of them, and is asked on their behalf."""

from journeyman import Agent, Chat, Subagents, Team, ask_user
from journeyman.events import ApprovalRequested, MailDelivered, MemberChanged, ModelResponded, QuestionAsked, RunStarted
from journeyman.gate import Allow, Ask, GateRequest
from journeyman.history import History
from journeyman.team import TeamSpawnRequest
from journeyman.testing.scripted import Answer, Policy, ScriptedModel, call
from journeyman.tools.tools import AnyTool, tool
from tests.play import Door, Recorder, Stage, make_gate, transcript
from tests.team.members import Crew, mail_in, mail_read, member_of, until_idle, wanted


def hiring(team: Team, *requests: TeamSpawnRequest) -> AnyTool:
    """Return the tool with which a leader makes these members."""

    @tool(name="hire")
    async def hire() -> str:
        made = [await team.spawn(request) for request in requests]
        return ", ".join([each.agent_id for each in made])

    return hire


async def test_mail_to_a_leader_that_works_is_read_before_its_next_model_call(stage: Stage) -> None:
    async with Crew() as team:
        member = wanted(member_of([call("send_message", to="team-lead", message="I begin."), "Done."]), name="ada")

        @tool
        async def wait() -> str:
            """Wait for the others."""
            await until_idle(team, "ada")
            return "waited"

        model = stage.model([call("hire", id="a"), call("wait", id="b"), "All done."])
        async with Chat(Agent(name="lead", model=model, tools=[hiring(team, member), wait])) as chat:
            assert (await chat.prompt("Go.")).unwrap() == "All done."
            assert team.roster().n_waiting == 0
    assert mail_in(stage.messages(2)[-1]) == [("ada", "I begin."), ("ada", "Done.")]
    assert History(stage.messages(2)).messages  # what was sent could be sent


async def test_mail_to_an_idle_leader_waits_until_it_is_continued() -> None:
    model = ScriptedModel([call("hire"), "They work.", "They are done."])
    async with Crew() as team:
        hire = hiring(team, wanted(member_of(["Counted."]), name="ada"))
        async with Chat(Agent(name="lead", model=model, tools=[hire])) as chat:
            assert (await chat.prompt("Go.")).unwrap() == "They work."
            assert await team.news()
            assert team.roster().n_waiting == 1
            assert (await chat.continue_()).unwrap() == "They are done."
            assert not await team.news()
    assert mail_read(model.requests[2]) == [("ada", "Counted.")]


async def test_the_events_of_members_reach_who_watches_the_leaders_chat(recorder: Recorder) -> None:
    async with Crew() as team:
        hire = hiring(team, wanted(member_of(["Counted."]), name="ada"))
        async with Chat(Agent(name="lead", model=ScriptedModel([call("hire"), "Ok.", "Fine."]), tools=[hire])) as chat:
            chat.subscribe(recorder)
            await chat.prompt("Go.")
            while await team.news():
                await chat.continue_()
    assert [event.path for event in recorder.of(RunStarted)] == [("lead",), ("lead", "ada"), ("lead",)]
    assert [event.liveness for event in recorder.of(MemberChanged)][:2] == ["working", "idle"]
    assert [(event.path, event.mail.sender) for event in recorder.of(MailDelivered)] == [(("lead",), "ada")]
    assert ("lead", "ada") in [event.path for event in recorder.of(ModelResponded)]


async def test_what_a_member_asks_is_asked_in_the_leaders_chat() -> None:
    script = [call("team_roster"), call("ask_user", question="Which?", options=["a", "b"]), "Done."]
    asked: list[tuple[str, tuple[str, ...]]] = []
    async with Crew() as team:
        agent = Agent(
            name="scout", model=ScriptedModel(script), tools=[ask_user], gate=make_gate(Ask("May it?"), "team_roster")
        )
        hire = hiring(team, wanted(agent, name="ada"))
        async with Chat(Agent(name="lead", model=ScriptedModel([call("hire"), "Ok.", "Fine."]), tools=[hire])) as chat:

            def answer(event: object) -> None:
                if isinstance(event, ApprovalRequested | QuestionAsked):
                    asked.append((event.question, event.path))
                    chat.answer(event.id, "b" if isinstance(event, QuestionAsked) else Allow())

            chat.subscribe(answer)
            await chat.prompt("Go.")
            assert await team.news()
            assert team.member("ada").last_text == "Done."
    assert asked == [("May it?", ("lead", "ada")), ("Which?", ("lead", "ada"))]


async def test_the_gates_of_the_leader_hold_for_its_members() -> None:  # design 4.11
    seen: list[tuple[str, tuple[str, ...]]] = []

    class Watching:
        async def decide(self, request: GateRequest) -> Allow:
            seen.append((request.tool_name, request.path))
            return Allow()

    async with Crew() as team:
        hire = hiring(team, wanted(member_of([call("team_roster"), "Done."]), name="ada"))
        lead = Agent(name="lead", model=ScriptedModel([call("hire"), "Ok."]), tools=[hire], gate=Watching())
        async with Chat(lead) as chat:
            await chat.prompt("Go.")
            await until_idle(team)
    assert seen == [("hire", ("lead",)), ("team_roster", ("lead", "ada"))]


async def test_members_live_longer_than_the_turn_that_made_them(door: Door) -> None:
    async with Crew() as team:
        hire = hiring(team, wanted(member_of([door.before("Done.")]), name="ada"))
        async with Chat(Agent(name="lead", model=ScriptedModel([call("hire"), "Ok."]), tools=[hire])) as chat:
            await chat.prompt("Go.")
            await door.reached.wait()
            assert team.member("ada").liveness == "working"
            door.opened.set()
            await until_idle(team)


async def test_a_chat_may_be_followed_by_another_that_goes_on_from_its_history() -> None:
    async with Crew() as team:
        hire = hiring(team, wanted(member_of(["One."]), name="ada"))
        more = hiring(team, wanted(member_of(["Two."]), name="max"))
        async with Chat(Agent(name="lead", model=ScriptedModel([call("hire"), "Ok."]), tools=[hire])) as chat:
            await chat.prompt("Go.")
            await until_idle(team)
            history = chat.messages
        model = ScriptedModel([call("hire"), "Ok.", "Both are done."])
        async with Chat(Agent(name="lead", model=model, tools=[more]), history=history) as chat:
            await chat.prompt("Go on.")
            await until_idle(team)
            await chat.continue_()
            assert team.roster().n_waiting == 0
    assert mail_read(model.requests[-1]) == [("ada", "One."), ("max", "Two.")]


async def test_a_member_that_makes_members_is_not_the_leader() -> None:
    async with Crew() as team:
        hire = hiring(team, wanted(member_of(["Counted."]), name="max"))
        script: list[Answer | Policy] = [call("hire"), "Hired."]
        await team.spawn(wanted(member_of(script, tools=[hire]), name="ada"))
        read = {mail.sender: mail.text for mail in await team.receive()}
        while len(read) < 2:
            read |= {mail.sender: mail.text for mail in await team.receive()}
        assert read == {"ada": "Hired.", "max": "Counted."}
        assert team.member("max").path == ("ada", "max")


async def test_delegation_with_a_team_name_makes_a_member(stage: Stage) -> None:
    async with Team() as team:
        scout = Agent(name="scout", description="Counts.", model=ScriptedModel(["Counted."]))
        arguments = {"agent": "scout", "task": "Count.", "name": "ada", "team_name": "crew", "description": "counting"}
        model = stage.model([call("subagent", arguments, id="a"), "Ok.", "Done."])
        async with Chat(Agent(name="lead", model=model, tools=[Subagents(scout, team=team), *team.tools()])) as chat:
            await chat.prompt("Go.")
            while await team.news():
                await chat.continue_()
        assert (team.name, team.member("ada").description, team.member("ada").agent) == ("crew", "counting", "scout")
    assert '"agent_id":"ada@crew"' in transcript(stage.messages(1))[-1][1].replace(" ", "")
    assert mail_in(stage.messages(2)[-1]) == [("ada", "Counted.")]
