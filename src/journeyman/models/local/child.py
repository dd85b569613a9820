"""The process of a local model: llama.cpp's own HTTP server, from the package `xllamacpp`.

It is started as a script by `server.py`, with a JSON document on one line of its standard input, and imports nothing of
this package. It prints one line with its address when the model is loaded, and ends when its standard input does: the
process that started it has ended by then, however that happened.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pkgutil import resolve_name
from typing import Any

MARK = "journeyman: "
"""The beginning of the line that tells the address; llama.cpp writes lines of its own."""
_LOOK_S = 2.0


def main() -> None:
    """Load the model, serve it, and end with whoever holds the other end of the standard input."""
    parent, asked = os.getppid(), json.loads(sys.stdin.readline())
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server = _start(asked)
    # In one write, and on a line of its own: the server's threads write theirs in pieces into the same pipe.
    os.write(1, f"\n{MARK}{json.dumps({'url': server.listening_address})}\n".encode())
    while os.getppid() == parent:  # a process that was forked meanwhile may hold the other end, too
        time.sleep(_LOOK_S)
    os._exit(0)


def _start(asked: dict[str, Any]) -> Any:  # noqa: ANN401 - a foreign class
    xllamacpp: Any = resolve_name("xllamacpp")  # only this process needs it
    params = xllamacpp.CommonParams()
    params.model.path = asked["path"]
    params.model_alias = {asked["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # any that is free
    params.api_keys = [asked["key"]]
    params.n_ctx = asked["window_tokens"] * asked["slots"]  # it is divided between the slots
    params.n_parallel = asked["slots"]
    params.ui = False
    params.fit_params = False  # the window is what was asked for
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked["threads"]
    if asked["template"] is not None:
        params.chat_template = asked["template"]
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
