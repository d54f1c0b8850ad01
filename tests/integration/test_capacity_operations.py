"""Random operations on a table with seven indexes: each costs what the estimator says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.charged import skipped
from tests.support.compared import Compared
from tests.support.engines import EngineName

if TYPE_CHECKING:
    from types_boto3_dynamodb import DynamoDBServiceResource

OPERATIONS = 800
"""That each engine answers at least; in the long search 3,000."""
OF_ONE_SEED = 100


@pytest.fixture
def table(engine_resource: DynamoDBServiceResource, engine_name: EngineName) -> Iterator[Compared]:
    table = Compared(engine_resource, skipped(engine_name))
    yield table
    table.client.close()


@pytest.mark.long_search
def test_operations(table: Compared) -> None:
    """Each operation on a table with seven indexes costs what is estimated, part by part."""

    # One seed is a hundred operations: nothing is gained by a smaller one.
    @settings(
        max_examples=max(OPERATIONS // OF_ONE_SEED, settings().max_examples // 5),
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        print_blob=True,
    )
    @given(seed=st.integers(0, 2**32 - 1))
    def costs(seed: int) -> None:
        table.run(seed, OF_ONE_SEED)

    costs()
    assert table.compared.keys() == table.operations.keys()
    # What an engine is known to count in another way is not asked.
    assert table.compared.total() >= 0.9 * OPERATIONS
