"""The process of a local model: llama.cpp's own HTTP server, from the package `xllamacpp`.

It is started as a script by `model.py`, and imports nothing of this package. Its standard input is a socket, over which
a listener comes, and a JSON document on one line. In a box, nobody outside reaches the server's own address; but the
listener was made outside, and whoever connects to it is joined with the server. It prints one line when the model is
loaded, and ends when its standard input does: the process that started it has ended by then, however that happened.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any
from urllib.parse import urlsplit

LOADED = "journeyman: loaded"
"""The line that tells that the server answers; llama.cpp writes lines of its own."""
_MOST_BYTES = 65_536


def main() -> None:
    """Load the model, serve it, and end with whoever holds the other end of the standard input."""
    given = socket.socket(fileno=0)
    _, descriptors, *_ = socket.recv_fds(given, 1, 1)
    asked = json.loads(given.makefile(encoding="utf-8").readline())
    threading.Thread(target=lambda: (given.recv(1), os._exit(0)), daemon=True).start()
    server = _start(asked)  # it ends when nobody holds it
    url = urlsplit(str(server.listening_address))
    # In one write, and on a line of its own: the server's threads write theirs in pieces into the same pipe.
    os.write(1, f"\n{LOADED}\n".encode())
    listener = socket.socket(fileno=descriptors[0])
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_join_with_server, args=(client, (url.hostname, url.port)), daemon=True).start()


def _join_with_server(client: socket.socket, address: tuple[str, int]) -> None:
    """Pass on what comes from a client, and what the server answers, until one of them ends."""
    with client, suppress(OSError), socket.create_connection(address) as server:
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answering = threading.Thread(target=_pass_on, args=(server, client), daemon=True)
        answering.start()
        _pass_on(client, server)
        answering.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):  # it is gone
        while read := source.recv(_MOST_BYTES):
            with suppress(OSError):  # it ends; to leave the rest unread would reset what it still answers
                target.sendall(read)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


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
