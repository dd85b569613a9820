"""The runs and chats of an owner: listed, and deleted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from starlette.requests import Request

from journeyman.durable.records import OVER, KeptSession, ListPlace, Row, info_of
from journeyman.errors import SessionInUse, StoreError
from journeyman.serve.hosting import Hosting
from journeyman.serve.openapi import MOST, PLACE
from journeyman.serve.refusals import Refusal, key_of, nothing
from journeyman.session import TURN, turn_name

Page: TypeAlias = tuple[list[dict[str, object]], str | None]
"""What is listed, and where the next page begins; None: there is none."""
_PLACE: Final = re.compile(PLACE)


def page_of(request: Request) -> tuple[ListPlace | None, int]:
    """Return which part of a list a client asks for: behind which place, and how much.

    Raises:
        Refusal: it is none.
    """
    place, limit = request.query_params.get("before"), request.query_params.get("limit", "50")
    if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit[:9]) <= MOST or len(limit) > 9:
        raise Refusal(400, "BAD_NUMBER", f"{limit[:80]!r} is no limit.", f"Give a number from 1 to {MOST}.")
    if place is not None and _PLACE.fullmatch(place) is None:
        raise Refusal(400, "BAD_PLACE", f"{place[:80]!r} is no place in a list.", "Give the `next` of the page before.")
    created, _, id = (place or "").partition("_")
    return None if place is None else ListPlace(float(created), id), int(limit)


async def list_runs(hosting: Hosting, owner: str, before: ListPlace | None, limit: int) -> Page:
    """Return the runs of an owner, newest first."""
    found = await hosting.durable.hub.engine.rows(prefix=f"{owner}:", older_than=before, limit=limit)
    lines: list[dict[str, object]] = []
    for run in [info_of(each) for each in found if each.agent in hosting.agents]:
        facts = {"agent": run.agent, "status": run.status, "created": run.created, "ended": run.ended}
        lines.append({"id": key_of(run.name or ""), **facts, "tokens": run.tokens, "cost": run.cost})
    return lines, _next_place(found, limit)


async def list_chats(hosting: Hosting, owner: str, before: ListPlace | None, limit: int) -> Page:
    """Return the chats of an owner in which something was said, newest first."""
    found = await hosting.durable.hub.engine.sessions(f"{owner}:", older_than=before, limit=limit)
    lines: list[dict[str, object]] = []
    for each in found:
        live = hosting.live(TURN + each.id)
        is_running = live is not None and live.ended is None
        lines.append({"id": key_of(each.id), "agent": each.agent, "created": each.created, "is_running": is_running})
    return lines, _next_place(found, limit)


def _next_place(found: Sequence[Row | KeptSession], limit: int) -> str | None:
    return None if len(found) < limit else f"{found[-1].created:.9f}_{found[-1].id}"


async def delete_run(hosting: Hosting, name: str) -> None:
    """Delete all that is kept of a run that has ended.

    Raises:
        Refusal: there is none, or it has not ended.
    """
    info = await hosting.info(name)
    if not info.is_over:
        raise Refusal(409, "NOT_OVER", f"The run {key_of(name)!r} is {info.status}.", "Stop it first.")
    await hosting.durable.hub.engine.forget([info.id])
    hosting.forget(name)


async def delete_chat(hosting: Hosting, id: str) -> None:
    """Delete all that is kept of a chat: what was said, and its turns.

    Raises:
        Refusal: there is none, or a turn of it has not ended.
    """
    snapshot, live = await hosting.conversation(id), hosting.live(TURN + id)
    engine = hosting.durable.hub.engine
    turn = await engine.get(turn_name(id, snapshot.n_runs + 1))
    goes_on = (live is not None and live.ended is None) or (turn is not None and turn.status not in OVER)
    in_use = Refusal(409, "CHAT_IN_USE", f"In the chat {key_of(id)!r} a turn goes on.", "Stop it first.")
    if goes_on:
        raise in_use
    try:
        await engine.delete_session(id)
    except SessionInUse:
        raise in_use from None
    except StoreError as error:
        if error.is_busy:
            raise
        if await engine.get(turn_name(id, 1)) is None:
            raise nothing("chat", id) from None
    hosting.forget(TURN + id)
