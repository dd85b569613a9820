"""Certificates over real TLS, with an authority of the tests' own that the environment names.

In a process of its own: an HTTP client reads the environment's authorities once. Over one adapter: that the others
refuse the same certificates is in `test_faults.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contracts.faults import CERTIFICATES
from tests.contracts.makers import KEY

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
    for certificate in ("here", "elsewhere", "self_signed"):
        print(await answered(ADAPTERS[0], certificate))

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
    here, *others = done.stdout.splitlines()
    assert here == "Hello there. 1"
    assert len(others) == 2
    for words in others:
        assert words.startswith("API_ERROR: The model call failed (network): ")
        assert words.endswith(" 0")
    assert KEY not in done.stdout
