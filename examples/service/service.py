"""A chat service: each user has a conversation of their own, and sees the answer while it is made.

Run it: `python examples/service/service.py`, with ANTHROPIC_API_KEY (or another MODEL), and talk to it:
`curl -N -H 'Content-Type: application/json' -d '{"text": "Hello."}' http://127.0.0.1:8000/chats/ada`

A real service takes the user from its login, not from the address.
"""

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from journeyman import Agent, Chat, Event, Events
from journeyman.errors import SessionInUse, StoreError
from journeyman.events import TextDelta, ToolCalled, TurnEnded


class Prompt(BaseModel):
    text: str


def service(agent: Agent, place: Path) -> FastAPI:
    """Return a service that chats with `agent`, and keeps the conversations at `place`."""

    async def turn(user: str, prompt: Prompt) -> AsyncGenerator[Events]:
        """Give the events of a turn until the response has ended; if the client left before, the turn is aborted."""
        try:
            async with Chat.open(agent, place, id=user, create=True) as chat, chat.stream(prompt.text) as events:
                yield events
        except SessionInUse as in_use:
            raise HTTPException(409, "Your last prompt is being answered. Wait for it, or hang up.") from in_use
        except StoreError as error:
            raise HTTPException(422, str(error)) from error

    async def say(events: Annotated[Events, Depends(turn)]) -> StreamingResponse:
        return StreamingResponse(server_sent(events), media_type="text/event-stream")

    app = FastAPI()
    app.add_api_route("/chats/{user}", say, methods=["POST"])
    return app


async def server_sent(events: Events) -> AsyncIterator[str]:
    async for event in events:
        if shown := shown_of(event):
            yield f"data: {json.dumps(shown)}\n\n"


def shown_of(event: Event) -> dict[str, object] | None:
    """Return what a client sees of an event; None for nothing."""
    match event:
        case TextDelta(text=text):
            return {"text": text}
        case ToolCalled(tool_name=name, tool_input=arguments):
            return {"tool": name, "arguments": arguments}
        case TurnEnded(result=result, usage=usage):
            return {"end": "cancelled" if result is None else result.code, "used": str(usage)}
        case _:
            return None


if __name__ == "__main__":
    model = os.environ.get("MODEL", "anthropic:claude-sonnet-5-5")
    companion = Agent(name="companion", model=model, system="Answer in a few sentences.")
    uvicorn.run(service(companion, Path("chats.db")), port=int(os.environ.get("PORT", "8000")))
