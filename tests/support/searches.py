"""Prints what the searches through all interleavings look at (``python -m tests.support.searches``).

They are those of tests/unit/migrate and tests/unit/sharding/test_leases_model.py, in their smallest form.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from tests.support.checker import search
from tests.unit.sharding.test_leases_model import WRONG, Rules, explore

MODULES = {"items": "single items", "several": "batches and transactions", "pages": "pages, streams and cursors"}


def rows() -> Iterator[tuple[str, int, int, int]]:
    """Yield what is searched, how many searches and states there are, and how many planted faults they find."""
    for name, said in MODULES.items():
        module = import_module(f"tests.unit.migrate.test_{name}_checked")
        found = [search(one()) for one in module.SEARCHES.values()]
        assert all(one.complete and one.violation is None for one in found), found
        yield f"{said} while they move", len(found), sum(one.states for one in found), len(module.MUTANTS)
    found_of_map = [explore(Rules(lease=lease, effect=1)) for lease in (1, 2)]
    assert all(bad is None for _, bad in found_of_map)
    yield "leases and changes of a shard map", len(found_of_map), sum(count for count, _ in found_of_map), len(WRONG)


def main() -> None:
    for said, searches, states, faults in rows():
        print(f"| {said} | {searches} | {states:,} | {faults} |")  # noqa: T201 - it is a command


if __name__ == "__main__":
    main()
