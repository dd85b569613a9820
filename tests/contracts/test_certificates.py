"""Certificates over real TLS, with an authority of the tests' own that the environment names.

In a process of its own: an HTTP client reads the environment's authorities once. Over one adapter: that the others
refuse the same certificates is in `test_faults.py`. It imports what this one needs: the SDKs of others take seconds.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.contracts.fault_wires import ANTHROPIC_EVENTS
from tests.contracts.faults import CERTIFICATES
from tests.contracts.makers import KEY

ROOT = Path(__file__).parents[2]

PROGRAM = """
import asyncio, ssl, sys
from journeyman import Agent, Limits, run
from journeyman.models.anthropic.model import AnthropicModel
from tests.models.raw_server import RawServer, http

folder, key, content_type = sys.argv[1:]
well = http(sys.stdin.buffer.read(), content_type=content_type)

async def answered(certificate):
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(f"{folder}/{certificate}.pem")
    async with RawServer(well, tls=shown) as server:
        model = AnthropicModel("claude-sonnet-5-5", api_key=key, base_url=server.url)
        result = await run(Agent(name="tester", model=model, limits=Limits(request_retries=0)), "Hello.")
        return f"{getattr(result, 'output', None) or result.error} {len(server.requests)}"

async def main():
    for certificate in ("here", "elsewhere", "self_signed"):
        print(await answered(certificate))

asyncio.run(main())
"""


def test_a_certificate_must_be_vouched_for_and_name_the_host() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(CERTIFICATES), KEY, ANTHROPIC_EVENTS.content_type],
        env={**os.environ, "SSL_CERT_FILE": str(CERTIFICATES / "authority.pem"), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        input=ANTHROPIC_EVENTS.whole.decode(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    here, *others = done.stdout.splitlines()
    assert here == "Hello there. 1"
    assert len(others) == 2
    for words in others:
        assert words.startswith("API_ERROR: The model call failed (bad_request): ")
        assert words.endswith(" 0")
    assert KEY not in done.stdout
