"""Hundreds of inputs over HTTP, where the provider fails now and then: none is lost, none is given twice."""

from random import Random

from journeyman import Agent, Limits, run_many
from journeyman.models.anthropic import AnthropicModel
from tests.play import succeeded
from tests.support.messages_answers import Reply, answer, cut, fault
from tests.support.messages_json import Json, as_list, as_object
from tests.support.servers import MessagesApi

SEED = 20_261_123


class FailingNowAndThen:
    """Answers with the input; each request fails in 5 of 100 cases, the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.n_faults = 0
        self.answered: list[str] = []

    def __call__(self, body: Json) -> Reply:
        content = as_object(as_list(body["messages"])[0])["content"]
        text = content if isinstance(content, str) else str(as_object(as_list(content)[0])["text"])
        if self._random.random() < 0.05:
            self.n_faults += 1
            errors = [fault(status, headers={"retry-after": "0"}) for status in (429, 529)]
            return self._random.choice([*errors, cut(answer(text), after_events=2)])
        self.answered.append(text)
        return answer(text)


async def test_hundreds_of_inputs_with_faults_are_each_answered_once() -> None:
    failing = FailingNowAndThen(SEED)
    inputs = [f"input {number}" for number in range(300)]
    async with MessagesApi(failing, judging=False, recording=False, n_writes=1) as api:
        model = AnthropicModel("claude-sonnet-5-5", api_key="key-of-a-test", base_url=api.url)
        agent = Agent(name="echo", model=model, limits=Limits(request_retries=8))
        given: list[str] = []
        async for input, result in run_many(agent, inputs, max_concurrency=64):
            assert succeeded(result).output == input
            given.append(input)
    assert given == inputs
    assert sorted(failing.answered) == sorted(inputs)
    assert failing.n_faults > 10, f"seed {SEED}"
