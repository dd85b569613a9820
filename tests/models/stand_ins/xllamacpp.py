"""Stands in for the package of llama.cpp's server: the file with the weights says where a test answers."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace


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
    """Loads nothing, and answers nowhere itself."""

    def __init__(self, params: CommonParams) -> None:
        weights = Path(params.model.path).read_bytes().removeprefix(b"GGUF")
        sys.stderr.write("llama_model_loader: this goes on for long\n" * 2_000)
        if not weights:
            raise RuntimeError("failed to load the model")
        said = json.loads(weights)
        Path(said["told"]).write_text(
            json.dumps(
                {
                    "at": [*params.hostnames, params.port],
                    "alias": sorted(params.model_alias),
                    "window": [params.n_ctx, params.n_parallel],
                    "threads": [params.cpuparams.n_threads, params.cpuparams_batch.n_threads],
                    "has_template": getattr(params, "chat_template", None) is not None,
                    "keys": len(params.api_keys),
                }
            ),
            encoding="utf-8",
        )
        self.listening_address = said["url"]
        sys.stderr.write("0.00.261.140 ")  # as the real one, it writes a line in pieces, from a thread of its own
        sys.stderr.flush()
