"""A LangGraph graph for tests of checkpointers, and LangGraph's own tests of them."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph

THREAD = {"configurable": {"thread_id": "visitor"}}
"""The thread in which a test runs the graph; it has 12 checkpoints at the end."""


class Visit(TypedDict):
    pages: Annotated[list[int], operator.add]


def visits(checkpointer: Any) -> Any:
    """Return a graph that visits ten pages, and keeps a checkpoint for each."""
    steps: Any = StateGraph(Visit)
    steps.add_node("visit", lambda state: {"pages": [len(state["pages"])]})
    steps.add_edge(START, "visit")
    steps.add_conditional_edges("visit", lambda state: "visit" if len(state["pages"]) < 10 else END)
    return steps.compile(checkpointer=checkpointer)


def conformance(make: Callable[[], AsyncGenerator[Any]]) -> dict[str, tuple[int, list[str]]]:
    """Run LangGraph's tests; ``make`` yields a checkpointer for those of each capability.

    Returns:
        By capability that the checkpointer has: how many tests passed, and the failures.
    """
    report = asyncio.run(validate(checkpointer_test("tested")(make)))
    return {name: (found.tests_passed, found.failures) for name, found in report.results.items() if found.detected}
