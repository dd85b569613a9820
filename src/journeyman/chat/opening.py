"""How a chat is opened: its model, and the session that keeps it. Imports `connect`, `model` and `session`."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack

from journeyman.connect import connect, connect_session
from journeyman.errors import ModelUnavailable
from journeyman.model import Model, opened
from journeyman.session import Session, Sessions


async def opened_model(model: Model | str, stack: AsyncExitStack) -> Model | None:
    """Return the model, open until `stack` is left. None: there is none of that name, as every prompt will say."""
    if isinstance(model, str):
        try:
            model = connect(model)
        except ModelUnavailable:
            return None
    await stack.enter_async_context(opened(model))
    return model


def opened_session(place: str | os.PathLike[str] | Sessions, id: str | None, *, agent: str, any_agent: bool) -> Session:
    """Return the session with this id, or a new one, of whatever keeps sessions at `place`."""
    if isinstance(place, str | os.PathLike):
        return connect_session(os.fspath(place), id, agent=agent, any_agent=any_agent)
    return place.session(id, agent=agent, any_agent=any_agent)
