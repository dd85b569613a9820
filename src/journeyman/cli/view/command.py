"""`journeyman view`: recorded and durable runs in a browser, served from this machine to this machine."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from functools import partial
from typing import Final

from journeyman.cli.app import Mistake
from journeyman.cli.durable import find_store, tell
from journeyman.cli.load_agent import AgentLoop
from journeyman.cli.recorded import FORMS
from journeyman.cli.run import Flag, Stdout
from journeyman.cli.serving import listening_told, until_told
from journeyman.errors import StoreError
from journeyman.view.asgi import serve_view

TOKEN: Final = "JOURNEYMAN_VIEW_TOKEN"
_HINTS: Final = {
    "NO_TOKEN": "Give a long random text with --token, or leave out --host.",
    "NO_HOST_NAME": "Listen at one of them: --host 192.0.2.7",
}


def view(
    store: str | None = None,
    /,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    token: str | None = None,
    read_only: Flag = False,
    no_open: Flag = False,
) -> int:
    """Look at runs in a browser, while they go on and afterwards, and say something to those that go on.

    It prints the address to open, which has a token in it. It ends with Ctrl-C.

    Args:
        store: A file or the URL of a database. Without it: JOURNEYMAN_STORE, or the nearest .journeyman/runs.db.
        host: The address to listen on. One that others can reach needs a --token.
        port: The port to listen on; 0 takes a free one. Without it: 7878, or the next one that is free.
        token: What whoever looks has to bring. Without it: JOURNEYMAN_VIEW_TOKEN, or a random one.
        read_only: Only look: nothing can be said to a run, and none can be forgotten.
        no_open: Do not open a browser.
    """
    Stdout()
    place = find_store(store)

    def ready(url: str) -> None:
        tell(f"Open {url}", f"It shows {place.shown}; Ctrl-C ends it.")
        has_screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        if has_screen and sys.stderr.isatty() and not (no_open or os.environ.get("CI")):  # none opens in a terminal
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serving = partial(
        serve_view,
        place.path,
        address=host,
        port=port,
        token=token or os.environ.get(TOKEN) or None,
        read_only=read_only,
        forms=FORMS,
        on_ready=ready,
    )
    try:
        with listening_told(host, _HINTS):
            stopping = partial(tell, "stopping; interrupt again to quit at once")
            return until_told(AgentLoop(), lambda abort: serving(abort=abort), stopping)
    except StoreError as error:
        raise Mistake(error.message, error.hint) from error
