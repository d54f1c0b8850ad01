from __future__ import annotations

from shardkit.capacity.usage import Account, Units, Usage


def test_usage_adds_figure_by_figure() -> None:
    assert Usage(1, 2, 3, 4, 5, 6) + Usage(10, 20, 30, 40, 50, 60) == Usage(11, 22, 33, 44, 55, 66)
    assert Units(1, 2, 3, 4).plus(Units(10, 20, 30, 40)) == Units(11, 22, 33, 44)
    assert Usage(1, 2, 3, 4, 5, 6).units_with_estimates == 10


def test_usage_marks_estimates() -> None:
    assert str(Usage(1.5, 2)) == "1.5 read units  2.0 write units"
    assert str(Usage(0, 2000, 0.5, 3)) == (
        "0.0 read units  2,000.0 write units  + estimated 0.5 read units  + estimated 3.0 write units"
    )


def test_usage_as_plain_values() -> None:
    assert Usage(1, 2, 3, 4, 5, 6).to_dict() == {
        "read_units": 1,
        "write_units": 2,
        "estimated_read_units": 3,
        "estimated_write_units": 4,
        "requests": 5,
        "throttles": 6,
    }


def test_an_account_adds_up() -> None:
    account = Account()
    account.add(Units(1, 2, 3, 4))
    account.add(Units(1, 2), requests=0)
    account.throttles += 1
    assert account.usage == Usage(2, 4, 3, 4, 1, 1)
