"""A LangGraph graph for tests of checkpointers."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

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
