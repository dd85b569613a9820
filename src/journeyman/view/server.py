"""The viewer on a port: by default only for this machine, and only for whoever has the address with its token."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from journeyman.cancellation import Abort
from journeyman.errors import DefinitionError
from journeyman.serve.http_guard import LOOPBACK, in_url, is_loopback, is_wildcard, listening_socket, serve_on
from journeyman.view.asgi import Form, create_viewer
from journeyman.view.auth import access_problems

PORT: Final = 7878
_TRIED: Final = 50
_MOST_AT_ONCE: Final = 200


async def serve_view(  # noqa: PLR0913 - one for each option, all by name
    store: str | os.PathLike[str],
    *,
    address: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    names: Sequence[str] = (),
    read_only: bool = False,
    forms: Mapping[str, Form] | None = None,
    abort: Abort | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the viewer of a store until `abort` fires, or this is cancelled.

    Args:
        store: A file, or `postgresql://…`, with recordings, or with durable runs.
        address: Where to listen. Another one than this machine's own needs a token.
        port: Which port; 0: any that is free. None: 7878, or the next one that is free.
        token: What whoever looks has to bring, of 16 characters at least. None: a random one.
        names: Further names under which it is asked.
        read_only: Nobody can say anything to a run.
        forms: What writes exports, by the name of the form.
        abort: Ends it.
        on_ready: Called with the address to open.

    Raises:
        DefinitionError: others could reach it without a token of the caller's.
        StoreError: the store cannot be opened.
        OSError: the address cannot be used, or the port is taken; then its text names the next free one.
    """
    if problems := list(access_problems(address, token, names)):
        raise DefinitionError("The viewer", problems)
    token = token or secrets.token_urlsafe(24)
    own = LOOPBACK if is_loopback(address) else () if is_wildcard(address) else (in_url(address),)
    view = create_viewer(store, token=token, hosts=[*own, *names], read_only=read_only, forms=forms)
    with _listening(address, port) as listening:
        if on_ready is not None:
            host = in_url(names[0] if names and is_wildcard(address) else address)
            on_ready(f"http://{host}:{listening.getsockname()[1]}/?token={token}")
        await serve_on(listening, view, abort=abort, connections=_MOST_AT_ONCE)


def _listening(address: str, port: int | None) -> socket.socket:
    """Return a socket that listens at the port, or at the next free one where none was asked for."""
    first = PORT if port is None else port
    for number in range(first, first + _TRIED if first else 1):
        try:
            listening = listening_socket(address, number)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        if port is None or number == port:
            return listening
        listening.close()
        raise OSError(errno.EADDRINUSE, f"the port {port} is taken; the next free one is {number}")
    raise OSError(errno.EADDRINUSE, f"the ports from {first} to {first + _TRIED - 1} are taken")
