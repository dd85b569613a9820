"""Every rule of the strict Gemini server: good requests pass, and each planted fault is found for its reason.

The bases are shaped like recorded requests that were taken, the faults like those of the measured wire, section 7.
"""

from typing import Final

import pytest

from tests.support.gemini_rules import DUMMIES, RULES, Memory, judge
from tests.support.messages_json import Json
from tests.support_tests.mutants import Change, Mutant, add, both, drop, put, refusals, rules_broken

HEADERS: Final = {"content-type": "application/json", "x-goog-api-key": "k"}
SCHEMA: Final[Json] = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
TOOLS: Final[list[Json]] = [
    {"functionDeclarations": [{"name": name, "description": "", "parametersJsonSchema": SCHEMA} for name in "ab"]}
]


SEARCH: Final[Json] = {"googleSearch": {}}


def user(*parts: Json) -> Json:
    return {"role": "user", "parts": [*parts]}


def model(*parts: Json) -> Json:
    return {"role": "model", "parts": [*parts]}


def called(name: str, id: str | None, signature: str | None = None) -> Json:
    beside: Json = {} if id is None else {"id": id}
    signed: Json = {} if signature is None else {"thoughtSignature": signature}
    return {"functionCall": {**beside, "name": name, "args": {"n": 1}}, **signed}


def answered(name: str, id: str | None, **response: object) -> Json:
    beside: Json = {} if id is None else {"id": id}
    return {"functionResponse": {**beside, "name": name, "response": response or {"output": "1"}}}


def good(*contents: Json, **more: object) -> Json:
    return {"generationConfig": {"maxOutputTokens": 100}, "tools": TOOLS, "contents": [*contents], **more}


GOOD: Final[dict[str, Json]] = {
    "plain": good(user({"text": "Hi."})),
    "turn": good(
        user({"text": "Hi."}),
        model({"text": "Hm.", "thought": True}, called("a", "1", "c2ln"), called("b", "2")),
        user(answered("a", "1"), answered("b", "2", error="no")),
    ),
    "without ids": good(user({"text": "Hi."}), model(called("a", None, DUMMIES[0])), user(answered("a", None))),
    "said": good(user({"text": "Hi."}), model({"text": "", "thoughtSignature": "dGV4dA=="}), user({"text": "Go."})),
    "hosted": good(
        user({"text": "Hi."}),
        tools=[*TOOLS, SEARCH],
        toolConfig={"includeServerSideToolInvocations": True, "functionCallingConfig": {"mode": "ANY"}},
        systemInstruction=user({"text": "Be brief."}),
    ),
    "files": good(
        user({"text": "Hi."}, {"inlineData": {"mimeType": "image/png", "data": "aGk="}}),
        generationConfig={"thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": True}, "temperature": 1},
    ),
}


def memory() -> Memory:
    served = Memory()
    served.remember([called("a", "1", "c2ln"), {"text": "", "thoughtSignature": "dGV4dA=="}])
    return served


def each(path: str, *values: object) -> list[Change]:
    return [put(path, value) for value in values]


_PART: Final = "contents.1.parts.1"
_RESPONSE: Final = "contents.2.parts.0.functionResponse"
_FUNCTION: Final = "tools.0.functionDeclarations.0"
MUTANTS: Final[list[Mutant]] = refusals(
    {
        "types_fit": {
            "plain": [put("model", "x"), put("generationConfig.max_tokens", 1), put("contents.0.parts.0.text", 7)],
            "files": [put("contents.0.parts.1.inlineData.data", 7), put("contents.0.content", [])],
        },
        "there_is_a_content": {"plain": [put("contents", []), drop("contents")]},
        "roles_are_known": {"turn": each("contents.1.role", "assistant", "function", "")},
        "the_user_begins_and_ends": {"said": [drop("contents.0"), drop("contents.2")]},
        "contents_have_parts": {
            "plain": [put("contents.0.parts", []), drop("contents.0.parts")],
            "hosted": [put("systemInstruction.parts", [])],
        },
        "a_part_has_one_data_field": {
            "plain": [put("contents.0.parts.0", {}), put("contents.0.parts.0.fileData", {"fileUri": "x"})]
        },
        "texts_say_something": {"plain": [put("contents.0.parts.0.text", "")]},
        "only_the_model_calls_and_thinks": {
            "turn": [put("contents.0.parts.0.thought", True), add("contents.1.parts", answered("a", "1"))],
            "without ids": [put("contents.1.role", "user")],
        },
        "a_turn_of_calls_follows_the_user": {"turn": [put("contents.0.role", "model")]},
        "responses_stand_alone": {"turn": [add("contents.2.parts", {"text": "Hurry."})]},
        "there_are_as_many_responses_as_calls": {
            "turn": [drop("contents.2.parts.0"), drop("contents.2"), put("contents.0", user(answered("a", "1")))],
            "without ids": [add("contents.2.parts", answered("a", None))],
        },
        "responses_bear_the_names_of_their_calls": {
            "turn": [*each(f"{_RESPONSE}.name", "b", ""), *each(f"{_RESPONSE}.id", "3"), drop(f"{_RESPONSE}.id")]
        },
        "a_response_is_an_object": {
            "turn": each(f"{_RESPONSE}.response", "1", ["1"], None, {"output": "1", "error": "2"})
        },
        "arguments_are_an_object": {
            "turn": [*each(f"{_PART}.functionCall.args", "{}", [], None), *each(f"{_PART}.functionCall.name", "", "2")]
        },
        "calls_of_the_turn_are_signed": {
            "turn": [drop(f"{_PART}.thoughtSignature")],
            "without ids": [drop("contents.1.parts.0.thoughtSignature")],
        },
        "signatures_come_back_where_they_came": {
            "turn": [
                *each(f"{_PART}.thoughtSignature", "anVuaw==", "not base64!"),
                put(f"{_PART}.functionCall.args", {"n": 2}),
                both(drop(f"{_PART}.thoughtSignature"), put("contents.1.parts.2.thoughtSignature", "c2ln")),
            ],
            "said": [put("contents.1.parts.0.text", "joined"), put("contents.1.parts.0.thoughtSignature", DUMMIES[0])],
        },
        "thoughts_bear_no_signature": {"turn": [put("contents.1.parts.0.thoughtSignature", "c2ln")]},
        "functions_are_declared_together": {"plain": [add("tools", TOOLS[0]), put("tools", [])]},
        "a_function_has_one_schema": {
            "plain": [
                put(f"{_FUNCTION}.parameters", {"type": "OBJECT"}),
                put(f"{_FUNCTION}.parametersJsonSchema", {**SCHEMA, "$schema": "x"}),
            ]
        },
        "tool_names_fit_the_pattern": {"plain": each(f"{_FUNCTION}.name", "2fast", "a b", "n" * 129)},
        "tool_names_are_unique": {"plain": [put(f"{_FUNCTION}.name", "b")]},
        "a_mode_has_its_functions": {
            "hosted": [drop("tools"), put("toolConfig.functionCallingConfig.allowedFunctionNames", ["c"])]
        },
        "file_searches_have_a_store": {"hosted": [put("tools.1", {"fileSearch": {"topK": 2}})]},
        "hosted_tools_stand_beside_functions_with_a_flag": {"hosted": [drop("toolConfig")]},
        "thinking_fits_the_model": {
            "files": [
                put("generationConfig.thinkingConfig.thinkingBudget", 100),
                put("generationConfig.thinkingConfig.thinkingLevel", "MAXIMAL"),
            ]
        },
        "settings_are_in_range": {
            "files": [
                *each("generationConfig.temperature", -1, 1000),
                put("generationConfig.stopSequences", [*"abcdef"]),
                put("generationConfig.responseJsonSchema", {}),
            ]
        },
        "files_are_of_a_kind_that_is_taken": {
            "files": [
                *each("contents.0.parts.1.inlineData.mimeType", "image/gif", "application/zip"),
                put("contents.0.parts.1.inlineData.data", "A" * 9_400_000),
            ]
        },
    }
)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_request_is_taken(name: str) -> None:
    assert judge("gemini-3-flash-preview", GOOD[name], HEADERS, memory=memory()) == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_bad_request_is_refused_for_its_reason(mutant: Mutant) -> None:
    found = judge("gemini-3-flash-preview", mutant.of(GOOD), HEADERS, memory=memory())
    assert mutant.rule in rules_broken(found)


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("gemini-2.5-flash", {"thinkingLevel": "LOW"}),
        ("gemini-2.5-pro", {"thinkingBudget": 0}),
        ("gemini-3-pro-preview", {"thinkingLevel": "LOW", "thinkingBudget": 1}),
    ],
)
def test_thinking_that_the_model_does_not_take_is_refused(name: str, config: Json) -> None:
    body = GOOD["plain"] | {"generationConfig": {"thinkingConfig": config}}
    assert rules_broken(judge(name, body, HEADERS)) == {"thinking_fits_the_model"}


def test_early_models_take_calls_without_signatures_and_no_hosted_tools_beside_functions() -> None:
    bare = good(user({"text": "Hi."}), model(called("a", None)), user(answered("a", None)))
    assert judge("gemini-2.5-flash", bare, HEADERS) == []
    assert judge("gemini-2.5-flash", GOOD["hosted"], HEADERS) != []


def test_every_rule_of_gemini_alone_has_a_mutant() -> None:
    own = {rule.__name__ for rule in RULES if rule.__module__ == "tests.support.gemini_rules"}
    assert own <= {mutant.rule for mutant in MUTANTS}
