"""State and projection: what the calls of one run share, by value, and what of it is in the result.

A failing call leaves no trace. With ANTHROPIC_API_KEY set, Claude shops; without, a script.
"""

import os
from dataclasses import dataclass, replace

from journeyman import Agent, Callbacks, Success, ToolContext, run_sync, tool
from journeyman.testing import Answer, ScriptedModel, call

PRICES = {"bread": 4.20, "cheese": 7.80, "wine": 19.50}


@dataclass(frozen=True)
class Cart:
    budget: float
    items: tuple[str, ...] = ()

    @property
    def left(self) -> float:
        return self.budget - sum(PRICES[item] for item in self.items)


@tool
def buy(item: str, ctx: ToolContext) -> str:
    """Put an item into the cart."""
    cart = ctx.run_state(Cart)
    cart = replace(cart, items=(*cart.items, item))
    ctx.set_run_state(cart)  # counts only if the call succeeds
    if cart.left < 0:
        raise ValueError(f"{item} is {-cart.left:.2f} more than is left")
    return f"{cart.left:.2f} left"


@tool(effect="pure")
def prices() -> dict[str, float]:
    """List the prices."""
    return PRICES


answers: list[Answer] = [
    call("prices"),
    [call("buy", item="bread"), call("buy", item="wine"), call("buy", item="cheese")],
    "Bread and cheese it is.",
]

shopper = Agent(
    name="shopper",
    model="anthropic:claude-sonnet-5-5" if os.environ.get("ANTHROPIC_API_KEY") else ScriptedModel(answers),
    tools=[prices, buy],
    run_state=lambda wish: Cart(budget=15.00),
    final_state=lambda states: states.run,
)

if __name__ == "__main__":
    show = Callbacks(on_tool_result=lambda context, name, result: print(f"{name}: {result}"))
    result = run_sync(shopper, "Buy a nice supper.", callbacks=show)
    if isinstance(result, Success):
        print(result.output, result.state)
