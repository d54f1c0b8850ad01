"""Celery's DynamoDB result backend. It makes its own client; its table has only a partition key."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.support.installed import Setting

celery = pytest.importorskip("celery")


def add(a: int, b: int) -> int:
    return a + b


def fail() -> None:
    raise ArithmeticError


@pytest.fixture
def table_name() -> str:
    return f"celery-{uuid.uuid4().hex}"


@pytest.fixture
def app(setting: Setting, table_name: str) -> Iterator[Any]:
    address = setting.url.removeprefix("http://")
    with setting.install_everywhere(table_name, by=None):
        app = celery.Celery(
            broker="memory://", backend=f"dynamodb://testing:testing@{address}/{table_name}", set_as_current=False
        )
        app.conf.update(task_always_eager=True, task_store_eager_result=True)
        yield app


@pytest.fixture
def assert_stored(setting: Setting, table_name: str) -> Callable[[Iterable[bytes]], None]:
    """Checks that the table has one item for each of the backend's keys, which it writes with str()."""
    return lambda keys: setting.assert_stored(setting.resource.Table(table_name), dict.fromkeys(map(str, keys), 1))


def test_results(app: Any, assert_stored: Callable[[Iterable[bytes]], None]) -> None:
    """The backend finds that its table is missing, makes it, and keeps a result for each task."""
    task = app.task(add, shared=False)
    results = [task.delay(number, 1) for number in range(10)]
    stored = [app.AsyncResult(result.id) for result in results]
    assert [result.get(timeout=10) for result in stored] == [*range(1, 11)]
    keys = [app.backend.get_key_for_task(result.id) for result in results]
    assert_stored(keys)
    stored[0].forget()
    assert app.AsyncResult(results[0].id).status == "PENDING"
    assert_stored(keys[1:])


def test_a_failure(app: Any, assert_stored: Callable[[Iterable[bytes]], None]) -> None:
    result = app.AsyncResult(app.task(fail, shared=False).delay().id)
    assert result.status == "FAILURE"
    with pytest.raises(ArithmeticError):
        result.get(timeout=10)
    assert_stored([app.backend.get_key_for_task(result.id)])


def test_a_chord(app: Any, assert_stored: Callable[[Iterable[bytes]], None]) -> None:
    """The backend counts the finished tasks of a chord in an item."""
    task, group = app.task(add, shared=False), uuid.uuid4().hex
    results = [task.delay(number, 1) for number in range(3)]
    app.backend.apply_chord((group, results), task.s(1))
    assert app.GroupResult.restore(group).join() == [1, 2, 3]
    assert [app.backend.incr(app.backend.get_key_for_chord(group)) for _ in range(3)] == [1, 2, 3]
    keys = [app.backend.get_key_for_task(result.id) for result in results]
    assert_stored([*keys, app.backend.get_key_for_group(group), app.backend.get_key_for_chord(group)])
