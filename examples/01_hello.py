"""The smallest agent: a name, a model, a text in and a text out.

With ANTHROPIC_API_KEY set, Claude answers; without, a script.
"""

import os

from journeyman import Agent, Failure, Success, run_sync
from journeyman.testing import ScriptedModel

script = ScriptedModel(["Good morning! What shall we build today?"])

greeter = Agent(
    name="greeter",
    model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else script,
    system="You greet whoever speaks to you, in one sentence.",
)

if __name__ == "__main__":
    match run_sync(greeter, "Hello!"):
        case Success(output=text, metadata=metadata):
            print(text)
            print(f"{metadata.attempts[0].usage.output_tokens} output tokens, {metadata.latency_s:.0f} seconds")
        case Failure(error=error):
            print(error, error.hint)
