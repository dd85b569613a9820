"""Teams of durable runs: a member is a run of its own, and mail is stored in the transaction of the step that sends it.

The exhaustive kills are in memory; what they show holds for every engine, since all pass the same tests.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from journeyman import Agent, Subagents, Success, Team
from journeyman.durable import Durable, Worker
from journeyman.model import Request
from journeyman.testing.scripted import Answer, FunctionModel, call
from tests.durable.processes import Stage, in_memory
from tests.durable.test_background import dies_at
from tests.play import n_answers, succeeded, virtual_clock
from tests.support.shares import SEED

_SKIPPED = 3
_IS_LONG = os.environ.get("JOURNEYMAN_CRASH") == "all"
_FROM = re.compile(r'<team-message from="([^"]+)"[^>]*>\n(.*?)\n</team-message>', re.DOTALL)


def said(request: Request) -> list[tuple[str, str]]:
    """Return the mail that a model has read: who wrote it, and what."""
    texts = "\n".join(message.text for message in request.messages if message.role == "user")
    return _FROM.findall(texts)


def scouts_model(request: Request) -> Answer:
    """Play ada, who asks bob and says what he has answered; and bob, who answers."""
    system = "".join(block.text for block in request.prefix.system)
    mail, n_answered = said(request)[1:], n_answers(request)
    called = [use.name for message in request.messages for use in message.tool_uses]
    if "You are ada" in system:
        if "send_message" not in called:
            return call("send_message", to="bob", message="What did you find?", id="ask")
        return f"bob found {mail[-1][1]}." if mail else "I have asked."
    if not mail:
        return "I wait."
    return (
        call("send_message", to="ada", message="gold", id="say")
        if "send_message" not in called
        else f"Said {n_answered}."
    )


def leads_model(request: Request) -> Answer:
    names = ("bob", "ada")  # whom ada writes to has to be there
    if n_answers(request) < len(names):
        name = names[n_answers(request)]
        return call("subagent", agent="scout", name=name, task="Find it.", id=name)
    return "; ".join(f"{who}: {what}" for who, what in said(request)) or "They are out."


def leader(**options: Any) -> Agent[str, str]:
    team = Team("crew")
    scout = Agent(name="scout", description="Finds.", model=FunctionModel(scouts_model))
    ready: dict[str, Any] = {"model": FunctionModel(leads_model), "tools": [Subagents(scout, team=team), *team.tools()]}
    return Agent(name="lead", **{**ready, **options})


async def test_members_are_runs_that_rest_between_turns_and_write_to_one_another(stage: Stage) -> None:
    async with stage.durable(suspend_after_s=0.02) as durable:
        assert "ada: bob found gold." in succeeded(await durable.run(leader(), "Find it.", id="top")).output
        members = await durable.list(agent="lead/scout")
        for each in members:
            assert isinstance(await (await durable.get(each.id)).result(), Success), "it ends when its leader does"


@pytest.mark.share(one_in=2)
@pytest.mark.timeout(160)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_wherever_the_process_dies_no_mail_is_lost_and_none_is_read_twice(after: bool) -> None:
    step = 1 if _IS_LONG else 5  # K20, K25
    at, lives = SEED % step + 1 - step, 2
    while lives == 2:
        at += step
        stage, dying = in_memory(), asyncio.Event()
        process = stage.process()
        await dies_at(process, at, after=after, now=dying)
        lives, result = 1, await stage.life(leader(), until=dying, process=process, suspend_after_s=0.02)
        if result is None:
            lives, result = 2, await stage.life(leader(), suspend_after_s=0.02)
        assert isinstance(result, Success), (at, result)
        assert "ada: bob found gold." in result.output, at
        async with stage.durable() as durable:
            await Worker(durable, agents=[leader()]).run(until_idle=True)  # the members end by themselves
            for each in await durable.list(agent="lead/scout"):
                done = await (await durable.get(each.id)).result()
                heard = "\n".join(message.text for message in done.history if message.role == "user")
                mail = Counter(_FROM.findall(heard))
                assert max(mail.values()) == 1, (at, mail)
                assert any(what in ("gold", "What did you find?") for _, what in mail), (at, mail)
    assert at > 40


@pytest.mark.skipif(not _IS_LONG, reason="it takes a while: make crash")
@pytest.mark.timeout(160)
def test_a_crew_and_teams_go_on_when_one_of_two_workers_is_killed() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.durable.crew"], capture_output=True, text=True, check=False)
    print(f"\n{done.stdout}")  # noqa: T201 - `make crash` shows it
    if done.returncode == _SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr


@virtual_clock
async def test_a_member_that_is_let_go_ends_however_slow_its_store_is() -> None:
    # K20: it has made up its mind to end while it reads once more what has come, and does not rest again
    stage = in_memory()
    process = stage.process()

    async def slowly(name: str) -> None:
        if name == "signals":
            await asyncio.sleep(1.0)

    process.before = slowly
    async with Durable(process, now=stage.now, suspend_after_s=0.02) as durable:
        assert isinstance(await durable.run(leader(), "Find it."), Success)
        for each in await durable.list(agent="lead/scout"):
            handle = await durable.get(each.id)
            assert isinstance(await asyncio.wait_for(handle.result(), 60), Success), (await handle.info()).status
