"""The analyst of the examples, whose tools note what they do; its queries never end while `stuck` is there."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman import Agent, tool

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from durable_agents import do

from examples.analyst.agent import agent as given
from examples.analyst.agent import birdstrikes
from examples.analyst.tables import Description, Rows


@tool(effect="once")
async def describe_table() -> Description:
    """Describe the table: its name, its rows, and what is in each column."""
    await do("describe")
    return birdstrikes.describe()


@tool(effect="pure")
async def query(sql: str) -> Rows:
    """Run one SELECT (SQLite) on the table. It can only read, and gives 200 rows at most.

    Args:
        sql: A single SELECT; names in double quotes, texts in single quotes.
    """
    await do("query", ends=not Path("stuck").exists())
    return birdstrikes.query(sql)


analyst: Agent[Any] = replace(given, tools=[describe_table, query])
