"""Pictures, documents and sounds: taken for what their bytes are, and whole."""

import re
import struct
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman import Audio, Document, Image
from journeyman.content import LARGEST_BYTES
from journeyman.content.signatures import has_password, n_pages_of, size_of
from journeyman.types import Base64, Url
from tests.play import instance_of
from tests.support.files import GIF, JPEG, MP3, PDF, PNG, WAV, WEBP


@pytest.mark.parametrize(
    ("name", "data", "media_type"),
    [
        *(("a.png", PNG, "image/png"), ("a.JPG", JPEG, "image/jpeg"), ("a.gif", GIF, "image/gif")),
        *(("a.webp", WEBP, "image/webp"), ("no suffix", PNG, "image/png"), ("a.dat", JPEG, "image/jpeg")),
    ],
)
def test_a_picture_is_read_from_a_file(tmp_path: Path, name: str, data: bytes, media_type: str) -> None:
    (tmp_path / name).write_bytes(data)
    source = instance_of(Base64, Image.from_path(tmp_path / name).source)
    assert (source.media_type, b64decode(source.data)) == (media_type, data)


def test_documents_and_sounds_are_read_from_files(tmp_path: Path) -> None:
    for name, data in (("a.pdf", PDF), ("b.md", b"# \xc3\xbcber"), ("c.log", b"ok"), ("d.wav", WAV), ("e.mp3", MP3)):
        (tmp_path / name).write_bytes(data)
    assert Document.from_path(tmp_path / "a.pdf") == Document(Base64.of(PDF, "application/pdf"), "a.pdf")
    assert Document.from_path(tmp_path / "b.md", title="B") == Document(
        Base64.of(b"# \xc3\xbcber", "text/markdown"), "B"
    )
    assert Document.from_path(tmp_path / "c.log").source == Base64.of(b"ok", "text/plain")
    assert Audio.from_path(tmp_path / "d.wav").source == Base64.of(WAV, "audio/wav")
    assert Audio.from_path(str(tmp_path / "e.mp3")).source == Base64.of(MP3, "audio/mpeg")


def test_bytes_say_themselves_what_they_are() -> None:
    assert Image.from_bytes(PNG) == Image.from_bytes(PNG, "image/png") == Image(Base64.of(PNG, "image/png"))
    assert Audio.from_bytes(MP3, "audio/mp3").source == Base64.of(MP3, "audio/mpeg")
    assert Document.from_bytes(b"a;b", "text/csv; charset=utf-8", "Rows") == Document(
        Base64.of(b"a;b", "text/csv"), "Rows"
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: Image.from_bytes(JPEG, "image/png"),
            "The picture is said to be image/png, but its bytes are image/jpeg. Rename it, or pass"
            " media_type='image/jpeg'.",
        ),
        (lambda: Image.from_bytes(PDF), "The picture is application/pdf, which is no picture. Use Document for it."),
        (lambda: Document.from_bytes(PNG), "The document is image/png, which is no document. Use Image for it."),
        (
            lambda: Audio.from_bytes(b"PK\x03\x04rest"),
            "The sound is application/zip, which is no sound. Convert it first.",
        ),
        (lambda: Image.from_bytes(b""), "The picture is empty."),
        (
            lambda: Image.from_bytes(PNG[:-9]),
            f"The picture is damaged: its end is missing: it has {len(PNG) - 9} bytes, and breaks off there. Give the"
            " whole file.",
        ),
        (
            lambda: Document.from_bytes(b"caf\xe9", title="menu.txt"),
            "menu.txt is neither a PDF nor text in UTF-8: byte 0xe9 at offset 3. Convert it first.",
        ),
        (
            lambda: Image.from_bytes(b"city", "image/png"),
            "its bytes are text/plain. Rename it, or give the right file.",
        ),
        (
            lambda: Image.from_bytes(b"\x00\xff\x07"),
            "The picture is of no type that is known here, which is no picture.",
        ),
    ],
)
def test_bytes_that_are_something_else_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


@pytest.mark.parametrize("data", [PNG, JPEG, GIF, WEBP], ids=["png", "jpeg", "gif", "webp"])
def test_a_cut_picture_is_refused_wherever_it_was_cut(data: bytes) -> None:
    assert len(data) > 24
    for end in range(24, len(data)):
        with pytest.raises(ValueError, match="its end is missing"):
            Image.from_bytes(data[:end])


@pytest.mark.parametrize(("kind", "data"), [(Document, PDF), (Audio, WAV)])
def test_a_cut_document_or_sound_is_refused(kind: type[Document] | type[Audio], data: bytes) -> None:
    with pytest.raises(ValueError, match="its end is missing"):
        kind.from_bytes(data[: len(data) // 2])


def test_a_preview_inside_of_a_picture_is_not_its_end() -> None:
    exif = b"\xff\xe1" + (2 + len(JPEG)).to_bytes(2, "big") + JPEG
    whole = JPEG[:2] + exif + JPEG[2:]
    assert Image.from_bytes(whole).source == Base64.of(whole, "image/jpeg")
    with pytest.raises(ValueError, match="its end is missing"):
        Image.from_bytes(whole[: 2 + len(exif) + 10])


def test_a_name_that_says_something_else_is_refused(tmp_path: Path) -> None:
    photo = tmp_path / "photo.png"
    photo.write_bytes(JPEG)
    with pytest.raises(
        ValueError, match=r"photo\.png is called image/png, but its bytes are image/jpeg\. Rename it, or"
    ):
        Image.from_path(photo)
    assert Image.from_path(photo, "image/jpeg").source == Base64.of(JPEG, "image/jpeg")


def test_a_file_that_is_missing_or_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.png"):
        Image.from_path(tmp_path / "none.png")
    huge = tmp_path / "huge.png"
    with huge.open("wb") as file:
        file.truncate(LARGEST_BYTES + 1)
    with pytest.raises(ValueError, match=r"huge\.png has 64,000,001 bytes; at most 64,000,000 can be sent"):
        Image.from_path(huge)


def test_an_address_is_one_of_the_web() -> None:
    assert Audio.from_url("https://example.com/a.mp3").source == Url("https://example.com/a.mp3")
    assert Document.from_url("https://example.com/a.pdf", "A").title == "A"
    for url, words in (
        ("file:///etc/passwd", "is not the address of a file"),
        ("https://me:secret@example.com/a.png", "has a user name or a password in it"),
        ("data:image/png;base64,iVBO", "holds the file itself"),
        ("http://[::1", "is not a URL"),
        ("https://example.com/" + "a" * 8_000, "is not the address of a file"),
        ("https://example.com/a\nb", "is not the address of a file"),
    ):
        with pytest.raises(ValueError, match=words) as raised:
            Image.from_url(url)
        assert "secret" not in str(raised.value)


@given(st.binary(max_size=64), st.sampled_from([None, "image/png", "text/plain", "audio/wav", "application/pdf", "x"]))
def test_any_bytes_are_taken_or_refused_in_one_sentence(data: bytes, media_type: str | None) -> None:
    for kind in (Image, Document, Audio):
        refusal = ""
        try:
            made = kind.from_bytes(data, media_type)
        except ValueError as error:
            refusal = str(error)
        else:
            assert isinstance(made.source, Base64)
            assert b64decode(made.source.data) == data
        assert refusal[-1:] in ("", ".")
        assert "\n" not in refusal


def mp4(*brands: bytes, behind: bytes = b"") -> bytes:
    return struct.pack(">I", 8 + 4 * len(brands) + 4) + b"ftyp" + brands[0] + bytes(4) + b"".join(brands[1:]) + behind


def track(kind: bytes) -> bytes:
    return b"moov" + b"hdlr" + bytes(8) + kind


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (mp4(b"mif1", b"mif1", b"heic"), "image/heic"),
        (mp4(b"mif1", b"avif"), "image/avif"),
        (mp4(b"msf1", b"hevc"), "image/heic"),
        (mp4(b"heix", b"mif1"), "image/heic"),
        (mp4(b"avis", b"avif"), "image/avif"),
        (mp4(b"M4A ", b"mp42"), "audio/mp4"),
        (mp4(b"M4B "), "audio/mp4"),
        (mp4(b"mp42", b"isom", behind=track(b"soun")), "audio/mp4"),
        (mp4(b"dash", b"iso6", behind=track(b"soun")), "audio/mp4"),
        (mp4(b"M4V ", b"M4A ", b"mp42", behind=track(b"vide") + track(b"soun")), None),
        (b"\xff\xfa\x90\0" + bytes(9), "audio/mpeg"),
        (b"\xff\xf2\x90\0" + bytes(9), "audio/mpeg"),
        (b"\xff\xe3\x18\xc4" + bytes(9), "audio/mpeg"),
        (b"\xff\xfd\x90\0" + bytes(9), "audio/mpeg"),
        (b"ID3\3\0\0\0\0\0\2xxfLaC\0", "audio/flac"),
        (b"\xff\xf0\x50\x80", "audio/aac"),
        (b"\xff\xfb\xf0\0", None),
        (b"\xff\xfe" + "Ein Text".encode("utf-16-le"), None),
        (b"\xef\xbb\xbf" + PDF, "application/pdf"),
        (b"\x1b%-12345X@PJL ENTER LANGUAGE=PDF\r\n" + PDF, "application/pdf"),
        (PDF + b"\0" * 5_000, "application/pdf"),
        (PDF + b"<html>ad</html>" * 500, "application/pdf"),
        (b"BMW sells 12 cars", "text/plain"),
        (b"ID3 tags are old", "text/plain"),
        (b"The ftyp box is first", "text/plain"),
        (b"%PDF- is how it begins", "text/plain"),
        (b"FORM 1040, with AIFF", "text/plain"),
    ],
)
def test_a_file_is_what_the_standard_of_its_format_says(data: bytes, media_type: str | None) -> None:
    kinds = (Image, Audio, Document)
    made: list[str] = []
    for kind in kinds:
        with suppress(ValueError):
            source = instance_of(Base64, kind.from_bytes(data).source)
            made.append(source.media_type)
    assert made == ([] if media_type is None else [media_type])


@pytest.mark.parametrize("said", [None, "image/heif", "image/heic"])
@pytest.mark.parametrize("name", ["a.heic", "a.heif"])
def test_a_photo_of_a_phone_is_taken_whatever_it_is_called(tmp_path: Path, name: str, said: str | None) -> None:
    (tmp_path / name).write_bytes(mp4(b"mif1", b"mif1", b"heic"))
    source = instance_of(Base64, Image.from_path(tmp_path / name, said).source)
    assert source.media_type == "image/heic"


def test_a_text_about_pdf_stays_a_text() -> None:
    page = b"```\n" + PDF + b"```\n"
    assert Document.from_bytes(page, "text/markdown").source == Base64.of(page, "text/markdown")


def test_a_pdf_that_breaks_off_within_what_was_added_to_it_is_refused() -> None:
    with pytest.raises(ValueError, match="its end is missing"):
        Document.from_bytes(PDF + b"2 0 obj<</Type/Annot>>endobj\nxref")


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (GIF, "image/gif"),
        (WEBP, "image/webp"),
        (JPEG[:2] + b"\xff\xc0\0\x0b\x08\0\1\0\1\1\1\x11\0" + JPEG[2:], "image/jpeg"),
        (b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0", "image/webp"),
        (b"RIFF\x16\0\0\0WEBPVP8 \x0a\0\0\0\0\0\0\x9d\1\x2a\1\0\1\0", "image/webp"),
    ],
)
def test_the_size_of_a_picture_stands_in_its_head(data: bytes, media_type: str) -> None:
    assert size_of(data, media_type) == (1, 1)
    for end in range(len(data)):
        size_of(data[:end], media_type)


def pages(n_pages: int, *, first: int = 2) -> bytes:
    return b"".join(b"%d 0 obj\n<</Type /Page/Parent 1 0 R>>endobj\n" % (first + number) for number in range(n_pages))


def test_pages_are_counted_where_they_can_be() -> None:
    paper = b"%PDF-1.4\n1 0 obj<</Type /Pages>>endobj\n" + pages(3) + b"startxref\n9\n%%EOF\n"
    assert n_pages_of(paper) == 3
    assert n_pages_of(paper + pages(3) + b"startxref\n9\n%%EOF\n") == 0
    linear = b"%PDF-1.5\n1 0 obj<</Linearized 1/L 9/N 700/T 5>>endobj\nstartxref\n0\n%%EOF startxref %%EOF"
    assert n_pages_of(linear) == 700
    assert not has_password(paper)
    assert has_password(paper.replace(b"startxref", b"trailer<</Encrypt 8 0 R>>startxref"))
