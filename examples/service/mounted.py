"""An agent in an application of yours: a page talks to it by AG-UI, programs by JSON, and each user sees their own.

Run it: `python examples/service/mounted.py`, with ANTHROPIC_API_KEY (or another MODEL), and open http://127.0.0.1:8000/?user=ada
The agent alone, without an application: `journeyman serve examples/service/mounted.py:companion --store chats.db`

A real service takes the user from its login, not from a header that anybody may send.
"""

import os
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from fastapi.responses import FileResponse
from starlette.requests import Request

from journeyman import Agent, tool
from journeyman.gate import Ask, GateRequest
from journeyman.serve import create_app


@tool(effect="once")
async def remember(fact: str) -> str:
    """Remember a fact about the user.

    Args:
        fact: What is to be remembered, in one sentence.
    """
    return "noted"


class AskFirst:
    async def decide(self, request: GateRequest) -> Ask:
        return Ask(f"May I remember: {request.arguments['fact']}")


companion = Agent(
    name="companion",
    model=os.environ.get("MODEL", "anthropic:claude-sonnet-5-5"),
    system="Answer in a few sentences. Remember what the user tells of themselves.",
    tools=[remember],
    gate=AskFirst(),
)


def owner(request: Request) -> str | None:
    return request.headers.get("x-user")


def service(agent: Agent, store: str) -> FastAPI:
    """Return an application with the page, and the agent below `/api`."""
    agents = create_app([agent], store=store, authorize=owner)
    around = FastAPI(lifespan=agents.lifespan)
    around.mount("/api", agents)
    around.add_api_route("/", lambda: FileResponse(Path(__file__).parent / "page.html"))
    return around


if __name__ == "__main__":
    uvicorn.run(service(companion, "chats.db"), port=int(os.environ.get("PORT", "8000")))
