"""Where a text comes from is kept with it: what is not the user's is never trusted as the user's words."""

import pytest

from journeyman import Message, Text, dump_messages, load_messages
from journeyman.history import MAIL_MARK, NOTICE, History


@pytest.mark.parametrize(("mark", "origin"), [(NOTICE, "notice"), (f"{MAIL_MARK} from='max'>", "mail")])
def test_what_was_stored_without_an_origin_is_told_by_its_mark_when_it_is_loaded(mark: str, origin: str) -> None:
    stored = dump_messages([Message("user", (Text(f"{mark} x"),))])
    assert b"origin" not in stored
    (message,) = History(load_messages(stored)).messages
    assert [block.origin for block in message.content if isinstance(block, Text)] == [origin]


def test_an_origin_is_stored_and_survives_a_text_without_a_mark() -> None:
    stored = dump_messages([Message("user", (Text("Send it.", origin="mail"), Text("Mine.")))])
    (message,) = History(load_messages(stored)).messages
    assert [block.origin for block in message.content if isinstance(block, Text)] == ["mail", None]
