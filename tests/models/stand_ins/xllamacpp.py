"""Stands in for the package of llama.cpp's server: the file with the weights says where a test answers."""

import json
import socket
import socketserver
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from weakref import finalize


class CommonParams:
    """Takes what the real one takes, and no more."""

    api_keys: list[str]
    chat_template: str
    fit_params: bool
    hostnames: list[str]
    model_alias: set[str]
    n_ctx: int
    n_parallel: int
    port: int
    ui: bool

    __slots__ = (
        *("api_keys", "chat_template", "cpuparams", "cpuparams_batch", "fit_params", "hostnames", "model"),
        *("model_alias", "n_ctx", "n_parallel", "port", "ui"),
    )

    def __init__(self) -> None:
        self.model = SimpleNamespace(path="")
        self.cpuparams, self.cpuparams_batch = SimpleNamespace(n_threads=-1), SimpleNamespace(n_threads=-1)


class Server:
    """Loads nothing. It answers where the weights say, or echoes lines at an address of its own."""

    def __init__(self, params: CommonParams) -> None:
        weights = Path(params.model.path).read_bytes().removeprefix(b"GGUF")
        sys.stderr.write("llama_model_loader: this goes on for long\n" * 2_000)
        if not weights:
            raise RuntimeError("failed to load the model")
        self.listening_address = json.loads(weights)["url"]
        if self.listening_address is None:
            server = Echo((params.hostnames[0], params.port), Lines)
            server.asked = {
                "at": [*params.hostnames, params.port],
                "alias": sorted(params.model_alias),
                "window": [params.n_ctx, params.n_parallel],
                "threads": [params.cpuparams.n_threads, params.cpuparams_batch.n_threads],
                "has_template": getattr(params, "chat_template", None) is not None,
                "keys": params.api_keys,
            }
            threading.Thread(target=server.serve_forever, daemon=True).start()
            finalize(self, server.server_close)  # as the real one ends when nobody holds it
            self.listening_address = f"http://127.0.0.1:{server.server_address[1]}"
        sys.stderr.write("0.00.261.140 ")  # as the real one, it writes a line in pieces, from a thread of its own
        sys.stderr.flush()


class Echo(socketserver.ThreadingTCPServer):
    daemon_threads = True
    asked: dict[str, object]
    n_left = 0


class Lines(socketserver.StreamRequestHandler):
    """Sends each line back, but for some that it does."""

    def handle(self) -> None:
        assert isinstance(self.server, Echo)
        for line in self.rfile:
            if line == b"close\n":
                return
            self.wfile.write(f"{self.do(self.server, *line.decode().split())}\n".encode())
        self.server.n_left += 1

    def do(self, server: Echo, what: str, about: str = "") -> str:
        try:
            match what:
                case "asked":
                    return json.dumps(server.asked)
                case "left":
                    return str(server.n_left)
                case "read" | "write":
                    Path(about).open("r" if what == "read" else "a", encoding="utf-8").close()
                case "connect":
                    socket.create_connection(("127.0.0.1", int(about))).close()
                case _:
                    return what
        except OSError as error:
            return type(error).__name__
        return "done"
