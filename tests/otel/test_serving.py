"""What is served is a part of the trace that its request names."""

import pytest

from tests.otel.sending import Sending
from tests.serve.http_served import clerk, serving

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
NAMED = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("path", ["runs", "chats/c/turns"])
async def test_a_run_is_a_part_of_the_trace_that_its_request_names(sending: Sending, path: str) -> None:
    async with serving([clerk()], runtime=sending.runtime()) as served:
        for traceparent in (NAMED, "00-nonsense", ""):
            status, _ = await served.ask("POST", f"/agents/clerk/{path}", {"input": "Hi."}, traceparent=traceparent)
            assert status == 200
    came = sending.received()
    ours = [span for span in came.spans if span.trace == TRACE]
    assert {span.name for span in ours if span.parent == SPAN} == {"queue clerk"} if path == "runs" else ours
    assert "invoke_agent clerk" in {span.name for span in ours}
    assert {span.name for span in came.spans if span.trace != TRACE} == {span.name for span in ours}
