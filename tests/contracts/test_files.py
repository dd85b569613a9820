"""Pictures, documents and sounds as input, over every wire: sent as the provider takes them, or refused before."""

import functools
from collections.abc import Sequence

import pytest

from journeyman import Agent, Audio, Document, Image, run
from journeyman.model import facts_of
from journeyman.testing.scripted import say
from journeyman.types import Base64, Content, Message, Text
from tests.contracts.carriers import CARRIER, Carrier
from tests.play import failed
from tests.support.files import JPEG, MP3, PDF, PNG, png

OURS = [name for name in CARRIER if not name.startswith("bridge")]
SEEING = [name for name in OURS if "document" not in name and "client" not in name]
PICTURE = Image.from_bytes(PNG)


async def said_over(carrier: Carrier, input: str | Content) -> tuple[Sequence[Message], str]:
    """Return the conversation, and the body of its request."""
    async with carrier.play([say("A pixel.")]) as played:
        result = await run(Agent(name="eyes", model=played.model), input)
    assert result.unwrap() == "A pixel."
    [request] = played.requests
    return result.history, request.raw.decode()


async def refused_by(carrier: Carrier, *input: str | Image | Document | Audio) -> str:
    """Return why an input is refused, before anything is sent."""
    async with carrier.play([say("Never.")]) as played:
        result = failed(await run(Agent(name="eyes", model=played.model), input))
        assert played.requests == []
    assert result.code == "INVALID_INPUT"
    return result.error.message


@pytest.mark.parametrize("name", CARRIER)
async def test_a_picture_beside_words_is_sent(name: str) -> None:
    history, body = await said_over(CARRIER[name], ["What is on this?", PICTURE])
    assert history[0].content == (Text("What is on this?"), PICTURE)
    assert "What is on this?" in body
    assert isinstance(PICTURE.source, Base64)
    assert PICTURE.source.data in body


@functools.cache
def too_large() -> Image:
    return Image.from_bytes(png(bytes(40_000_000)))


@pytest.mark.parametrize("name", SEEING)
async def test_a_picture_that_is_too_large_is_refused_before_it_is_sent(name: str) -> None:
    async with CARRIER[name].play([say("Never.")]) as played:
        media = facts_of(played.model).media
    assert media is not None
    assert media.image is not None
    if media.largest_request_bytes is None and media.image.largest_bytes > 40_000_000:
        pytest.skip("the service says no limit")
    refusal = await refused_by(CARRIER[name], "Look.", too_large())
    assert "item 2, image: it has 40,000,0" in refusal
    assert "Make it smaller" in refusal


@pytest.mark.parametrize("name", [name for name in OURS if not name.startswith(("vllm", "openrouter", "g", "v"))])
async def test_a_sound_is_refused_where_no_model_hears(name: str) -> None:
    assert "item 1, audio: " in (refusal := await refused_by(CARRIER[name], Audio.from_bytes(MP3)))
    assert "takes no sounds. Use another model, or leave it out" in refusal


@pytest.mark.parametrize("name", ["vllm-events", "openrouter-events", "google-events", "vertex-google", "gemini-2.5"])
async def test_a_sound_is_sent_where_a_model_hears(name: str) -> None:
    sound = Audio.from_bytes(MP3)
    _, body = await said_over(CARRIER[name], [sound, "Who speaks?"])
    assert isinstance(sound.source, Base64)
    assert sound.source.data in body


@pytest.mark.parametrize("name", SEEING)
async def test_a_text_is_a_document_everywhere(name: str) -> None:
    _, body = await said_over(CARRIER[name], [Document.from_bytes(b"12 umbrellas", title="note.txt"), "How many?"])
    assert "12 umbrellas" in body or "MTIgdW1icmVsbGFz" in body


async def test_a_kind_that_one_provider_alone_takes_is_refused_by_the_others() -> None:
    heic = Image(Base64.of(b"\0\0\0\x18ftypheic", "image/heic"))
    _, body = await said_over(CARRIER["google-events"], [heic, "What?"])
    assert "image/heic" in body
    refusal = await refused_by(CARRIER["anthropic-events"], heic)
    kinds = "image/gif, image/jpeg, image/png and image/webp"
    assert f"takes no image/heic. Convert it to one of these: {kinds}" in refusal


async def test_every_wrong_file_is_named() -> None:
    refusal = await refused_by(
        CARRIER["vllm-events"], Document.from_bytes(PDF), "And:", Image(Base64.of(b"x", "image/x"))
    )
    assert "item 1, document: " in refusal
    assert "takes no application/pdf" in refusal
    assert "item 3, image: " in refusal


@pytest.mark.parametrize("name", SEEING)
async def test_what_another_provider_took_is_said_to_be_missing(name: str) -> None:
    heic, sound = Image(Base64.of(b"\0\0\0\x18ftypheic", "image/heic")), Audio(Base64.of(b"OggS", "audio/ogg"))
    history = [Message("user", (Text("Look."), heic, sound)), Message("assistant", (Text("I see."),))]
    async with CARRIER[name].play([say("Done.")]) as played:
        result = await run(Agent(name="eyes", model=played.model), "And now?", history=history)
    assert result.unwrap() == "Done."
    [body] = played.requests
    for kind in ("An image (image/heic)", "A sound (audio/ogg)"):
        is_sent = name.startswith(("google", "vertex", "gemini"))
        assert (f"[{kind} that cannot be sent to this model is left out.]" in body.raw.decode()) is not is_sent


@pytest.mark.parametrize("name", ["anthropic-events", "openai-chat-events", "gemini-2.5"])
async def test_a_private_address_is_never_fetched(name: str) -> None:
    refusal = await refused_by(CARRIER[name], Document.from_url("http://127.0.0.1:1/a.pdf"))
    assert "127.0.0.1 is not a public address, so it is not asked" in refusal


@pytest.mark.parametrize("name", ["openai-chat-events", "openai-responses-events", "google-events"])
async def test_an_address_that_the_provider_fetches_is_sent_as_it_is(name: str) -> None:
    _, body = await said_over(CARRIER[name], [Image.from_url("https://example.com/a.png"), "What?"])
    assert "https://example.com/a.png" in body


def test_the_jpeg_of_the_tests_is_one() -> None:
    assert Image.from_bytes(JPEG).source == Base64.of(JPEG, "image/jpeg")


WIDE = png(size=(9_000, 10))
LOCKED = PDF.replace(b"/Root 1 0 R", b"/Root 1 0 R/Encrypt 2 0 R")
LONG = PDF.replace(
    b"trailer", b"".join(b"%d 0 obj<</Type/Page>>endobj\n" % number for number in range(2, 1_100)) + b"trailer"
)


@pytest.mark.parametrize("name", [name for name in OURS if name.startswith(("anthropic", "vertex-anthropic"))])
async def test_what_claude_is_known_to_refuse_is_told_before_it_is_sent(name: str) -> None:
    refusal = await refused_by(CARRIER[name], Image.from_bytes(WIDE), Document.from_bytes(LOCKED))
    assert "item 1, image: it has 9,000 x 10 pixels, and " in refusal
    assert "takes pictures of at most 8,000 pixels wide and high. Make it smaller" in refusal
    assert "item 2, document: it is protected by a password, and " in refusal
    refusal = await refused_by(CARRIER[name], Document.from_bytes(LONG))
    assert "item 1, document: it has 1,098 pages, and " in refusal
    assert ". Send it in parts" in refusal


@pytest.mark.parametrize("name", ["google-events", "vertex-google"])
async def test_what_gemini_is_known_to_refuse_is_told_before_it_is_sent(name: str) -> None:
    assert "it has 1,098 pages, and " in await refused_by(CARRIER[name], Document.from_bytes(LONG))
    await said_over(CARRIER[name], [Image.from_bytes(WIDE), Document.from_bytes(LOCKED)])
