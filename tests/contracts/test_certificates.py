"""Certificates over real TLS, with an authority of the tests' own that the environment names.

In a process of its own: an HTTP client reads the environment's authorities once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.fault_adapters import ADAPTERS
from tests.contracts.fault_wires import ECHO
from tests.contracts.faults import CERTIFICATES

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, ssl, sys
from journeyman import Agent, run
from tests.contracts.fault_adapters import ADAPTERS
from tests.contracts.faults import CERTIFICATES
from tests.models.raw_server import RawServer, http

async def answered(adapter, certificate):
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    well = http(adapter.wire.whole, content_type=adapter.wire.content_type)
    async with RawServer(well, tls=shown) as server, adapter.model(server.url) as model:
        result = await run(Agent(name="tester", model=model, retries=0), "Hello.")
        return f"{getattr(result, 'output', None) or result.error} {len(server.requests)}"

async def main():
    for adapter in ADAPTERS:
        if adapter.wire.is_stream:
            for certificate in ("here", "elsewhere", "self_signed"):
                print(adapter.name, certificate, await answered(adapter, certificate))

asyncio.run(main())
"""


@pytest.mark.timeout(90)  # it imports every SDK
def test_a_certificate_must_be_vouched_for_and_name_the_host() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env={**os.environ, "SSL_CERT_FILE": str(CERTIFICATES / "authority.pem"), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = {(name, certificate): rest for name, certificate, rest in (line.split(" ", 2) for line in _lines(done))}
    assert {name for name, _ in told} == {adapter.name for adapter in ADAPTERS if adapter.wire.is_stream}
    for (name, certificate), words in told.items():
        if certificate == "here":
            assert (name, words) == (name, "Hello there. 1")
        else:
            assert words.startswith("API_ERROR: The model call failed (network): "), name
            assert words.endswith(" 0"), name
    assert ECHO not in done.stdout


def _lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return done.stdout.splitlines()
