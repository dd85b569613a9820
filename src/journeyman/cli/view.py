"""`journeyman view`: recorded and durable runs in a browser, served from this machine to this machine."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from functools import partial
from typing import Annotated, Final

from journeyman.cli.durable import find_store, tell
from journeyman.cli.load_agent import AgentLoop
from journeyman.cli.options import Flag, Port, explain
from journeyman.cli.recorded import FORMS
from journeyman.cli.run import Stdout
from journeyman.cli.serving import listening_told, until_told
from journeyman.view.asgi import serve_view

TOKEN: Final = "JOURNEYMAN_VIEW_TOKEN"
_HINTS: Final = {
    "NO_TOKEN": f"Set {TOKEN} to a long random text, or leave out --host.",
    "NO_HOST_NAME": "Listen at one of them: --host 192.0.2.7",
}


def view(
    store: Annotated[
        str | None, explain("A file or the URL of a database; else as --store of the others.", name="STORE")
    ] = None,
    /,
    *,
    host: Annotated[str, explain("The address to listen on; JOURNEYMAN_VIEW_TOKEN if others reach it.")] = "127.0.0.1",
    port: Port = None,
    read_only: Annotated[Flag, explain("Only look: nothing can be said, and nothing forgotten.")] = False,
    no_open: Annotated[Flag, explain("Do not open a browser.")] = False,
) -> int:
    """Look at runs in a browser, while they go on and afterwards, and say something to those that go on.

    It prints the address to open, which has a token in it. It ends with Ctrl-C.
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
        token=os.environ.get(TOKEN) or None,
        read_only=read_only,
        forms=FORMS,
        on_ready=ready,
    )
    with listening_told(host, _HINTS):
        stopping = partial(tell, "stopping; interrupt again to quit at once")
        return until_told(AgentLoop(), lambda abort: serving(abort=abort), stopping)
