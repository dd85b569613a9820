"""Prompted output over every wire: the system prompt has the schema, and the JSON is read out of the last text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from journeyman import Agent, DefinitionError, Event, Output, run, tool
from journeyman.events import OutputDelta, TextDelta
from journeyman.testing import ScriptedModel, StreamedAnswer, call, say
from journeyman.tools.prose import ObjectFinder, find_object
from tests.contracts.carriers import CARRIER, run_over
from tests.play import failed, succeeded


class Row(BaseModel):
    product: str
    n: int


@tool(effect="pure")
async def look(n: int) -> str:
    """Look at one row."""
    return f"row {n}"


def some(row: Row) -> None:
    """There is at least one."""
    if row.n < 1:
        raise ValueError(f"there are {row.n}")


PROMPTED = Output(Row, mode="prompted", description="The row that sold best.")
GOOD = '{"product":"umb}rella \\"","n":12}'


@pytest.mark.parametrize("name", CARRIER)
async def test_the_json_of_an_answer_in_words_is_the_output(name: str) -> None:
    answers = [say("I look.", call("look", n=1, id="a")), say(f"Here it is:\n```json\n{GOOD}\n```\nAll done.")]
    result, events, bodies = await run_over(name, *answers, output=PROMPTED, system="You sell.", tools=[look])
    assert result.unwrap() == Row(product='umb}rella "', n=12)
    assert "".join(each.text for each in events if isinstance(each, TextDelta)).startswith("I look.Here it is:")
    assert [each.json for each in events if isinstance(each, OutputDelta)][-1] == GOOD
    for body in bodies:
        assert "The row that sold best." in json.dumps(body)
        assert not {"response_format", "text", "output_format"} & body.keys()


WRONG = [
    ("It was the umbrella.", "the answer holds no JSON object"),
    ('{"product": "umbrella", "n": 1', "the JSON object in the answer does not end"),
    ("So: {'product': 1}.", "the JSON object in the answer cannot be read: "),
    ('{"product":"a","n":1} or {"product":"b","n":1}', "the answer holds 2 different JSON objects; give one"),
    ('{"product": "a", "n": "many"}', "n: "),
    ('{"product": "a", "n": 0}', "there are 0"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG)
async def test_a_wrong_answer_is_sent_back_with_its_exact_fault(wrong: str, told: str) -> None:
    agent = Agent(name="a", model=ScriptedModel([wrong, GOOD]), output=PROMPTED, validators=[some])
    result = succeeded(await run(agent, "What sold best?"))
    assert told in result.history[2].text
    assert len(result.metadata.attempts) == 2


async def test_what_is_not_corrected_ends_the_run_with_the_candidate() -> None:
    said = 'At last: {"product":"a","n":0}'
    result = failed(
        await run(Agent(name="a", model=ScriptedModel([said], repeat=True), output=PROMPTED, validators=[some]), "?")
    )
    assert (result.code, result.candidate) == ("MAX_ATTEMPTS_EXCEEDED", {"product": "a", "n": 0})


async def test_partials_grow_while_the_answer_is_written() -> None:
    events: list[Event] = []
    model = ScriptedModel([StreamedAnswer('Well: {"value": [1, 2]} so.', size=9)])
    agent = Agent(name="a", model=model, output=Output(list[int], mode="prompted"))
    assert (await run(agent, "?", on_event=events.append)).unwrap() == [1, 2]
    assert [each.partial(list[int]) for each in events if isinstance(each, OutputDelta)] == [None, [], [1, 2]]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"reflection": str}, "NATIVE_REFLECTION"),
        ({"reminder": True}, "NATIVE_REMINDER"),
        ({"strict": True}, "PROMPTED_STRICT"),
    ],
)
def test_what_needs_a_tool_or_a_provider_is_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(DefinitionError, match=rf"\[{code}\] The output is prompted"):
        Agent(name="a", model=ScriptedModel([]), output=Output(Row, mode="prompted", **options))


OBJECTS = st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=8), st.lists(st.text())))
WORDS = st.text(st.characters(exclude_characters="{}`", exclude_categories=["Cs"]), max_size=12)


@given(OBJECTS, WORDS, WORDS, st.booleans(), st.integers(1, 5))
def test_an_object_is_found_whatever_stands_around_it_and_in_whatever_pieces(
    value: dict[str, object], before: str, after: str, fenced: bool, size: int
) -> None:
    written = json.dumps(value, ensure_ascii=len(before) % 2 == 0)
    text = f"{before}\n```json\n{written}\n```\n{after}" if fenced else f"{before} {written} {after}"
    assert json.loads(find_object(text)) == value
    finder = ObjectFinder()
    for at in range(0, len(text), size):
        finder.add(text[at : at + size])
    assert (finder.spans, finder.first()) == (ObjectFinder(text).spans, written)


HOSTILE = ["{" * 1_000_000, '{"' * 500_000, "```\n" * 250_000, '{"a":' * 200_000, "{" * 400_000 + "}" * 400_000]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda text: text[:5])
def test_a_megabyte_of_braces_is_refused(hostile: str) -> None:
    with pytest.raises(ValueError, match="JSON object"):
        find_object(hostile)
