"""Questions to values, and typed readers: what they answer at run time, and what pyright makes of the answers."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias, assert_type

import pytest
from pydantic import JsonValue

from journeyman.cancellation import own_task
from journeyman.definition import narrowing as ask
from journeyman.definition.json_numbers import WrittenNumber, read_json, read_object

Word: TypeAlias = Literal["read", "write"]


_ANSWERS: list[tuple[Callable[[object], bool], list[object], list[object]]] = [
    (ask.is_json_object, [{}, {"a": 1}], [[], "{}", None]),
    (ask.is_json_array, [[], [1]], [(), {}, "[]"]),
    (ask.is_dict, [{1: 2}], [[]]),
    (ask.is_str_dict, [{"a": object()}], [[]]),
    (ask.is_list, [[object()]], [(), "a"]),
    (ask.is_list_or_tuple, [[], ()], ["a", {1}]),
    (ask.is_list_of_texts, [[], ["a"], ("a", "b")], ["a", [1], ["a", None], {"a"}]),
    (ask.is_set, [{1}, frozenset((1,))], [[1], {}]),
    (ask.is_mapping, [{}], [[]]),
    (ask.is_str_mapping, [{"a": 1}], [[]]),
    (ask.is_sequence, [[], (), "a"], [{1}, {}]),
    (ask.is_class, [int], [1]),
    (ask.is_partial, [partial(print)], [print]),
    (ask.is_group, [BaseExceptionGroup("", [KeyError()])], [KeyError(), None]),
]


@pytest.mark.parametrize(("question", "fits", "others"), _ANSWERS)
def test_a_question_is_answered_as_isinstance_does(
    question: Callable[[object], bool], fits: list[object], others: list[object]
) -> None:
    assert [question(each) for each in (*fits, *others)] == [True] * len(fits) + [False] * len(others)


def _name_what_it_is(given: object) -> str:
    if ask.is_json_object(given):
        assert_type(given, dict[str, JsonValue])
        return "object"
    if ask.is_list_of_texts(given):
        assert_type(given, list[str] | tuple[str, ...])
        return "texts"
    if ask.is_one_of(given, Word):
        assert_type(given, Word)
        return "word"
    return "other"


def test_a_checker_knows_what_a_value_holds_after_a_question() -> None:
    kinds = [_name_what_it_is(each) for each in ({"a": [1]}, ["a"], "read", "edit")]
    assert kinds == ["object", "texts", "word", "other"]


def test_json_is_read_with_its_digits_and_an_object_only_as_one() -> None:
    assert read_object('{"a": {"b": []}}') == {"a": {"b": []}}
    held = read_object('{"a": 0.1000000000000000000001}')["a"]
    assert isinstance(held, WrittenNumber)
    assert held.text == "0.1000000000000000000001"
    assert read_json("[1]") == [1]
    with pytest.raises(ValueError, match="The JSON is a list, not an object"):
        read_object("[1]")
    with pytest.raises(ValueError, match="unexpected"):
        read_object("{")


async def test_a_task_knows_itself_and_a_callback_is_refused() -> None:
    assert own_task() is asyncio.current_task()
    refused: list[str] = []

    def ask_for_it() -> None:
        try:
            own_task()
        except RuntimeError as error:
            refused.append(str(error))

    asyncio.get_running_loop().call_soon(ask_for_it)
    await asyncio.sleep(0)
    assert refused == ["A callback of the event loop called what only a task may. Call it in a task."]
