"""`journeyman view`: recorded and durable runs in a browser, served from this machine to this machine."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import webbrowser
from typing import Annotated, Final

from cyclopts import Parameter

from journeyman.cancellation import Abort
from journeyman.cli.app import Mistake
from journeyman.cli.durable import find_store, tell
from journeyman.cli.ending import Interrupt
from journeyman.cli.options import Flag, Port
from journeyman.cli.recorded import FORMS
from journeyman.cli.run import Stdout
from journeyman.errors import DefinitionError, StoreError
from journeyman.view.server import serve_view

TOKEN: Final = "JOURNEYMAN_VIEW_TOKEN"


def view(
    store: Annotated[
        str | None, Parameter(name="STORE", help="A file or the URL of a database; else as --store of the others.")
    ] = None,
    /,
    *,
    host: Annotated[
        str, Parameter(help="The address to listen on; JOURNEYMAN_VIEW_TOKEN if others reach it.")
    ] = "127.0.0.1",
    port: Port = None,
    read_only: Annotated[Flag, Parameter(help="Only look: nothing can be said, and nothing forgotten.")] = False,
    no_open: Annotated[Flag, Parameter(help="Do not open a browser.")] = False,
) -> int:
    """Look at runs in a browser, while they go on and afterwards, and say something to those that go on.

    It prints the address to open, which has a token in it. It ends with Ctrl-C.
    """
    Stdout()
    place = find_store(store)
    if port is not None and not 0 <= port < 65_536:
        raise Mistake(f"{port} is no port.", "Give a number from 0 to 65535.")
    abort = Abort()
    interrupt = Interrupt(abort, lambda: tell("stopping; interrupt again to quit at once"))

    def ready(url: str) -> None:
        tell(f"Open {url}", f"It shows {place.shown}; Ctrl-C ends it.")
        has_screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
        if has_screen and sys.stderr.isatty() and not (no_open or os.environ.get("CI")):  # none opens in a terminal
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()

    serving = serve_view(
        place.path,
        address=host,
        port=port,
        token=os.environ.get(TOKEN) or None,
        read_only=read_only,
        forms=FORMS,
        abort=abort,
        on_ready=ready,
    )
    try:
        with interrupt.listening(), asyncio.Runner() as runner:
            runner.run(serving)
            interrupt.has_ended = True
    except DefinitionError as error:
        problem = error.problems[0]
        raise Mistake(problem.message, problem.hint) from error
    except StoreError as error:
        raise Mistake(error.message, error.hint) from error
    except OSError as error:
        why = error.strerror or str(error)
        raise Mistake(f"{host} cannot be listened on: {why}.", "Choose another --port or --host.") from error
    return interrupt.exit_code or 0
