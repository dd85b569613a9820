"""What becomes of a message: where it is read, when, and what if it cannot be."""

from __future__ import annotations

import asyncio
import re

import pytest

from journeyman import Agent, Limits, Tasks, Team
from journeyman.errors import TeamError
from journeyman.events import MailDelivered, MailSent, ToolFinished
from journeyman.models.scripted import Scripted, call
from journeyman.team.post import REMEMBERED_IDS
from journeyman.tools.tools import tool
from tests.chat.players import Door
from tests.support.recorder import Recorder, transcript
from tests.support.stage import Stage
from tests.team.players import fates, join, mail_read, member_of, team_changes, until_idle, wanted


async def test_mail_is_read_before_the_next_model_call_and_not_at_the_end_of_the_turn(stage: Stage) -> None:
    door = Door()
    model = stage.model([[call("wait", id="a"), call("wait", id="b")], "Done."])
    async with Team("crew") as team:
        await team.spawn(wanted(Agent(name="scout", model=model, tools=[door.tool()])))
        await door.reached.wait()
        team.send("scout", "Hurry up.")
        door.opened.set()
        await until_idle(team)
        assert team.usage.requests == 2
    results, said = transcript(stage.messages(1))[-1][1:3], stage.texts(1)
    assert results == ("#a: waited", "#b: waited")  # mail keeps no call from being made
    assert [text.partition("\n")[2].partition("\n")[0] for text in said] == ["Hurry up."]


async def test_mail_to_an_idle_member_begins_a_turn() -> None:
    model = Scripted(["One.", "Two."])
    async with Team("crew") as team:
        await team.spawn(wanted(member_of(model)))
        await until_idle(team)
        team.send("scout", "One more.")
        await team_changes(team)
        await until_idle(team)
        assert mail_read(model.requests[1])[-1] == ("team-lead", "One more.")


async def test_mail_that_comes_while_a_turn_ends_goes_on_with_that_turn() -> None:
    door = Door()
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", [door.before("One."), "Two."])
        await door.reached.wait()
        team.send("ada", "And?")
        door.opened.set()
        (mail,) = await team.receive()
        assert mail.text == "Two."  # it was not idle in between


async def test_members_write_to_one_another() -> None:
    listening = Scripted(["Ready.", "Heard."])
    async with Team("crew") as team:
        await team.spawn(wanted(member_of(listening), name="max"))
        await until_idle(team)
        await join(team, "ada", [call("send_message", to="max", message="Hello, max.", summary="greeting"), "Sent."])
        while len(listening.requests) < 2:
            await team_changes(team)
        await until_idle(team)
    assert mail_read(listening.requests[1])[-1] == ("ada", "Hello, max.")
    assert 'summary="greeting"' in listening.requests[1].messages[-1].text


async def test_a_message_to_all_goes_to_every_member_but_the_sender_and_the_leader() -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        for name in ("max", "eve"):
            await join(team, name, ["Ready.", "Heard."])
        await until_idle(team)
        await join(team, "ada", [call("send_message", to="*", message="Hello."), "Sent."])
        await until_idle(team)
        assert [mail.to for mail in team.send("*", "All of you.")] == ["ada", "eve", "max"]
    sent = [(event.mail.sender, event.mail.to) for event in recorder.of(MailSent) if event.mail.text == "Hello."]
    assert sent == [("ada", "eve"), ("ada", "max")]


async def test_the_sender_is_told_where_its_message_went() -> None:
    recorder = Recorder()
    script = [
        call("send_message", to="*", message="Anybody?"),
        call("send_message", to="team-lead", message="Nobody is here."),
        call("send_message", to="max", message="Hello?"),
        call("send_message", to="ada", message="Hello, me."),
        call("send_message", to="team-lead", message=" "),
        "Done.",
    ]
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", script)
        await until_idle(team)
    assert [event.tool_result for event in recorder.of(ToolFinished)] == [
        "Nobody else is there, so nothing was sent.",
        "Sent to team-lead.",
        "Error: 'max' is unknown. Send to one of ['ada', 'team-lead'], or to '*' for all members.",
        "Error: 'ada' is the sender. Send to one of ['ada', 'team-lead'], or to '*' for all members.",
        "Error: The message is blank: there is nothing to send.",
    ]


async def test_mail_to_a_member_that_is_gone_is_a_dead_letter_that_everybody_sees() -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "max", ["Done."])
        await until_idle(team)
        await team.shutdown("max")
        script = [call("send_message", to="max", message="Are you there?"), call("team_roster"), "Done."]
        await join(team, "ada", script)
        await until_idle(team)
        (letter,) = team.dead_letters
        assert (letter.mail.text, letter.reason) == ("Are you there?", "gone")
        assert team.roster().dead_letters == (letter,)
    refused, roster = [event.tool_result for event in recorder.of(ToolFinished)]
    assert refused == ("Error: 'max' has ended, so it will not read that. See team_roster for who is there.")
    assert re.sub(r"\d+ s", "0 s", roster) == (
        "team crew, led by team-lead\n- ada (scout): working, last sign 0 s ago\n"
        "- max (scout): gone, last sign 0 s ago\nnot delivered:\n- ada to max (gone): Are you there?"
    )
    assert fates(recorder)[letter.mail.id] == ["gone"]


async def test_what_a_member_has_not_read_when_it_ends_is_dead_letters() -> None:
    door = Door()
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", [door.before("Done.")])
        await door.reached.wait()
        sent = [*team.send("ada", "One."), *team.send("ada", "Two.")]
        await team.shutdown(grace_s=0.0)
        assert [(letter.mail.id, letter.reason) for letter in team.dead_letters] == [
            (mail.id, "unread") for mail in sent
        ]


async def test_what_the_leader_has_not_read_when_the_team_is_left_is_dead_letters() -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", ["Done."])
        await until_idle(team)
    assert [letter.reason for letter in team.dead_letters] == ["closed"]
    assert list(fates(recorder).values()) == [["closed"]]


async def test_mail_for_an_earlier_member_does_not_reach_a_later_one() -> None:
    model = Scripted(["Two."])
    async with Team("crew") as team:
        first = await join(team, "ada", ["One."])
        await until_idle(team)
        await team.shutdown()
        await team.spawn(wanted(member_of(model), name="ada"))
        await until_idle(team)
        assert team.send("ada", "For the first.", incarnation=first.incarnation) == ()
        assert [letter.reason for letter in team.dead_letters] == ["stale"]
        assert team.member("ada").n_waiting == 0
        assert len(model.requests) == 1


async def test_what_was_sent_under_an_id_is_not_sent_again() -> None:
    async with Team("crew") as team:
        await join(team, "ada", ["One.", "Two."])
        await until_idle(team)
        assert len(team.send("ada", "Hello.", id="x")) == 1
        assert team.send("ada", "Hello.", id="x") == ()
        assert team.member("ada").n_waiting == 1


async def test_only_so_many_ids_are_remembered() -> None:
    async with Team("crew") as team:
        post = team._post  # pyright: ignore[reportPrivateUsage] - to fill it without a hundred thousand turns
        for number in range(REMEMBERED_IDS + 1):
            post.send(None, "*", "Hello.", id=str(number))
            assert post.is_new(f"{number}")
        assert not post.is_new(str(REMEMBERED_IDS))
        assert post.is_new("0")


async def test_mail_is_sent_in_the_thread_of_the_team_only() -> None:
    async with Team("crew") as team:
        await join(team, "ada", ["Done.", "Done."])
        with pytest.raises(TeamError, match="Mail is sent in the thread of the team"):
            await asyncio.to_thread(team.send, "ada", "Hello.")


async def test_a_member_that_is_gone_sends_no_more() -> None:
    stuck, released = asyncio.Event(), asyncio.Event()
    said: list[str] = []

    @tool
    async def hang() -> str:
        """Hang, whatever happens."""
        stuck.set()
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        try:
            team.send("team-lead", "I am still here!")
        except TeamError as error:
            said.append(str(error))
        return "released"

    async with Tasks() as tasks, Team("crew", tasks=tasks) as team:
        await team.spawn(wanted(member_of([call("hang")], tools=[hang]), name="ada"))
        await stuck.wait()
        ended = await team.shutdown(grace_s=0.0, force_s=0.0)
        assert ended.abandoned == ("ada",)
        released.set()
        await tasks.wait()
    assert said == ["'ada' has ended, and sends no more mail."]


async def test_a_message_says_who_delivered_it_where() -> None:
    recorder = Recorder()
    async with Team("crew", on_event=recorder) as team:
        await join(team, "ada", [call("send_message", to="team-lead", message="Hello."), "Done."])
        await until_idle(team)
        await team.receive()
    sent, delivered = recorder.of(MailSent)[0], recorder.of(MailDelivered)[0]
    assert (sent.path, delivered.path, sent.mail) == (("ada",), (), delivered.mail)


async def test_receive_waits_no_longer_than_it_is_told() -> None:
    async with Team("crew") as team:
        with pytest.raises(TimeoutError):
            await team.receive(timeout_s=0.0)


async def test_news_are_over_when_nobody_works_any_more() -> None:
    async with Team("crew") as team:
        assert not await team.news()
        await join(team, "ada", [call("send_message", to="team-lead", message="Hello."), "Done."])
        read: list[str] = []
        while await team.news():
            read += [mail.text for mail in await team.receive()]
        assert read == ["Hello.", "Done."]


async def test_mail_is_no_reason_to_go_over_a_limit() -> None:
    agent = Agent(name="scout", model=Scripted(["One.", "Two."]), limits=Limits(iterations=1))
    async with Team("crew") as team:
        await team.spawn(wanted(agent))
        await until_idle(team)
        team.send("scout", "Go on.")
        await team_changes(team)
        await until_idle(team)
        assert team.member("scout").last_text == "Two."
