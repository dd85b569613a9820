"""Addresses and keys as people have them: what is joined rightly, and what is refused when the model is made."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from journeyman.connect import connect
from journeyman.errors import ModelUnavailable
from journeyman.models.anthropic import AnthropicModel
from journeyman.models.google import GoogleModel
from journeyman.models.openai import AZURE, OPENAI, OpenAIChatModel, OpenAIModel
from tests.contracts import makers
from tests.models.asking import failure_of
from tests.models.raw_server import RawServer, http

DATED = replace(AZURE, chat_path="/openai/deployments/{model}/chat/completions")
CHAT = partial(OpenAIChatModel, "m")
MAKERS = (CHAT, partial(OpenAIModel, "m"), partial(AnthropicModel, "m"), partial(GoogleModel, "m"))


def url_of(model: Any) -> str:  # noqa: ANN401 - each adapter has it under its own name
    return getattr(model, "url", None) or model._url


@pytest.mark.parametrize(
    ("make", "base_url", "url"),
    [
        (CHAT, "https://h/v1", "https://h/v1/chat/completions"),
        (CHAT, " https://h/v1/ \n", "https://h/v1/chat/completions"),
        (CHAT, "https://h/v1/#a", "https://h/v1/chat/completions"),
        (CHAT, "https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        (CHAT, "https://h/v1/chat/completions/", "https://h/v1/chat/completions"),
        (CHAT, "https://h/chat", "https://h/chat/chat/completions"),  # a gateway may well be called so
        (CHAT, "https://h/d?api-version=1&b=", "https://h/d/chat/completions?api-version=1&b="),
        (partial(CHAT, endpoint=AZURE), "https://h/openai/v1/", "https://h/openai/v1/chat/completions"),
        (partial(CHAT, endpoint=DATED), "https://h?api-version=1&x=2",
         "https://h/openai/deployments/m/chat/completions?api-version=1&x=2"),
        (partial(OpenAIChatModel, "my/model", endpoint=DATED), "https://h?v=a+b",
         "https://h/openai/deployments/my%2Fmodel/chat/completions?v=a+b"),
        (MAKERS[1], "https://h/v1/responses?x=1", "https://h/v1/responses?x=1"),
        (MAKERS[2], "https://h/v1/messages", "https://h/v1/messages"),
        (MAKERS[2], "https://h/v1?x=1", "https://h/v1/messages?x=1"),
        (MAKERS[2], "https://h/anthropic", "https://h/anthropic/v1/messages"),
        (MAKERS[3], "https://h/v1beta?x=1", "https://h/v1beta/models/m:streamGenerateContent?x=1&alt=sse"),
    ],
)  # fmt: skip
def test_an_address_is_joined_where_its_parts_belong(make: Any, base_url: str, url: str) -> None:  # noqa: ANN401
    assert url_of(make(base_url=base_url)) == url


def test_an_address_without_a_path_gets_the_usual_one_before_its_query() -> None:
    model = connect("openai-chat:m", api_key="k", base_url="https://h/?api-version=1")
    assert url_of(model) == "https://h/v1/chat/completions?api-version=1"


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_no_address_is_refused_when_the_model_is_made(make: Any) -> None:  # noqa: ANN401
    for base_url in ("h/v1", "ftp://h", "https://", "https://h:x", "https://h o/v1", '"https://h/v1"', "https://[::1",
                     "https://<your-resource>.example/v1", "https://${HOST}/v1", "https://h/{{path}}"):  # fmt: skip
        with pytest.raises(ModelUnavailable, match="which is no address") as caught:
            make(base_url=base_url)
        assert base_url in str(caught.value)


@pytest.mark.parametrize("make", MAKERS)
def test_a_key_that_nobody_gave_out_is_refused_when_the_model_is_made(make: Any) -> None:  # noqa: ANN401
    for key, what in {
        '"sk-1"': "quotation mark", "'sk-1'": "quotation mark", '"sk-1': "quotation mark", "`sk-1`": "quotation mark",
        "${OPENAI_API_KEY}": "placeholder", "$OPENAI_API_KEY": "placeholder", "<your-key>": "placeholder",
        "{{key}}": "placeholder", "sk-<key>": "placeholder", "$(pass-key)": "placeholder", "sk 1": "character",
    }.items():  # fmt: skip
        with pytest.raises(ModelUnavailable, match=what):
            make(api_key=key, base_url="https://h")
    make(api_key="sk-$abc/+=_.~<", base_url="https://h")


async def test_an_address_where_nothing_is_found_is_told_without_its_secrets() -> None:
    async with RawServer(http(b"404 page not found", status=404, content_type="text/plain")) as server:
        base_url = server.url + "/v1?key=AIza-secret-1"
        for make in (makers.chat, makers.responses, makers.anthropic, makers.google):
            async with make(server.url, base_url=base_url) as model:
                error = await failure_of(model)
            asked = server.requests[-1].split(b" ")[1].decode().partition("?")[0]
            assert f"The address is {server.url}{asked}?key=…" in str(error)
            assert "AIza-secret-1" not in str(error)


def test_the_endpoint_keeps_its_own_address() -> None:
    assert url_of(CHAT(endpoint=OPENAI)) == "https://api.openai.com/v1/chat/completions"
