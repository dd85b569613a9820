"""What each ready strategy leaves of a conversation."""

import pytest

from journeyman import DefinitionError
from journeyman.compaction import CLEARED, REPEATED, ClearToolResults, Compaction, TrimTexts
from journeyman.testing.scripted import call
from journeyman.types import Base64, Image, Message, Text, ToolResult
from journeyman.window import fault_of_view
from tests.compaction.small_window import asked, chain, exchange, said, texts_of


async def test_old_results_are_cleared_and_the_newest_five_stay() -> None:
    messages = chain(8, size=400)
    view = await ClearToolResults().view(messages, excess_tokens=1)
    assert (texts_of(view.messages)[:3], texts_of(view.messages)[3:]) == ([CLEARED] * 3, texts_of(messages)[3:])
    assert fault_of_view(messages, view.messages) is None
    assert view.messages[1::2] == messages[1::2]


async def test_of_equal_calls_only_the_newest_keeps_its_result() -> None:
    same: list[Message] = []
    for number in range(3):
        result = ToolResult(f"{number} {'x' * 400}", tool_use_id=f"c{number}")
        same.append(Message("assistant", (call("look", where="here", id=f"c{number}"),)))
        same.append(Message("user", (result,)))
    view = await ClearToolResults().view([asked(), *same, *exchange(9)], excess_tokens=1)
    assert texts_of(view.messages)[:3] == [REPEATED, REPEATED, "2 " + "x" * 400]


async def test_short_results_and_those_of_named_tools_stay() -> None:
    messages = [asked(), *exchange(1, size=20), *exchange(2, size=400), *exchange(3), *exchange(4)]
    view = await ClearToolResults(keep=1).view(messages, excess_tokens=1)
    assert texts_of(view.messages)[:2] == [texts_of(messages)[0], CLEARED]
    view = await ClearToolResults(keep=1, never={"look"}).view(messages, excess_tokens=1)
    assert not view.changed


async def test_the_results_of_the_open_turn_stay_even_if_all_are_to_go() -> None:
    messages = chain(3, size=400)
    view = await ClearToolResults(keep=0).view(messages, excess_tokens=1)
    assert texts_of(view.messages) == [CLEARED, CLEARED, texts_of(messages)[2]]


async def test_clearing_twice_changes_nothing_more() -> None:
    once = await ClearToolResults(keep=1).view(chain(4, size=400), excess_tokens=1)
    twice = await ClearToolResults(keep=1).view(once.messages, excess_tokens=1)
    assert (twice.messages, twice.changed) == (once.messages, False)


async def test_an_error_stays_an_error_and_a_picture_is_cleared_too() -> None:
    shown = ToolResult((Text("A chart."), Image(Base64("AAAA", "image/png"))), is_error=True, tool_use_id="c1")
    messages = [asked(), exchange(1)[0], Message("user", (shown,)), *exchange(2)]
    view = await ClearToolResults(keep=1).view(messages, excess_tokens=1)
    assert view.messages[2].content == (ToolResult(CLEARED, is_error=True, tool_use_id="c1"),)


async def test_long_texts_lose_their_middle() -> None:
    long = "a" * 3_000 + "é" * 3_000
    messages = [asked(long), said(long), asked("Next."), *exchange(1, size=5_000), *exchange(2), *exchange(3)]
    view = await TrimTexts().view(messages, excess_tokens=1)
    cut = "a" * 1_200 + "\n[… 4,000 characters left out …]\n" + "é" * 800
    assert [message.text for message in view.messages[:3]] == [cut, cut, "Next."]
    assert len(texts_of(view.messages)[0]) < 2_100
    assert list(view.messages[5:]) == messages[5:]
    assert fault_of_view(messages, view.messages) is None


async def test_the_prompt_that_is_worked_on_and_answers_with_calls_stay_whole() -> None:
    long = "a" * 6_000
    wordy = Message("assistant", (Text(long), call("look", id="c0")))
    messages = [asked(long), wordy, exchange(0)[1], *exchange(1), *exchange(2)]
    messages[2] = Message("user", (ToolResult("short", tool_use_id="c0"), Text(long)))
    view = await TrimTexts(keep_messages=1).view(messages, excess_tokens=1)
    assert list(view.messages[:2]) == messages[:2]
    assert len(view.messages[2].text) < 2_100


async def test_the_last_messages_stay_whole_and_texts_of_just_the_length_too() -> None:
    messages = [asked("a" * 4_000), said("b" * 4_001), asked("c" * 9_000), said("d" * 9_000), asked("e"), said("f")]
    messages = [*messages, asked("g")]
    view = await TrimTexts().view(messages, excess_tokens=1)
    assert [len(message.text) for message in view.messages] == [4_000, 2_033, 2_033, 9_000, 1, 1, 1]


@pytest.mark.parametrize(
    ("window", "given", "max_tokens", "threshold"),
    [
        (200_000, None, None, 183_616),  # 13% is more than the most
        (100_000, None, None, 87_000),
        (20_000, None, None, 15_904),  # 13% is less than the least
        (6_000, None, None, 3_000),  # never more than half
        (100_000, 1_000, 8_000, 99_000),
        (100_000, None, 20_000, 80_000),  # the answer that was asked for has room
        (100_000, None, 90_000, 50_000),
    ],
)
def test_the_threshold_fits_the_window(window: int, given: int | None, max_tokens: int | None, threshold: int) -> None:
    compaction = Compaction([ClearToolResults()], reserve_tokens=given)
    assert compaction.threshold_tokens(window, max_tokens=max_tokens) == threshold


@pytest.mark.parametrize("given", [0, "3"])
def test_a_reserve_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(DefinitionError, match=rf"reserve_tokens is {given!r}\. Give a number of tokens of at least 1"):
        Compaction([], reserve_tokens=given)  # pyright: ignore[reportArgumentType] - the mistake in question
