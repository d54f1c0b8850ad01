"""Celery's DynamoDB result backend. It makes its own client; its table has only a partition key."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
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


def test_results(setting: Setting, table_name: str, app: Any) -> None:
    """The backend finds that its table is missing, makes it, and keeps a result for each task."""
    task = app.task(add, shared=False)
    results = [task.delay(number, 1) for number in range(10)]
    stored = [app.AsyncResult(result.id) for result in results]
    assert [result.get(timeout=10) for result in stored] == [*range(1, 11)]
    # Celery's key is bytes, which the backend writes with str().
    keys = {str(app.backend.get_key_for_task(result.id)): 1 for result in results}
    setting.assert_stored(setting.resource.Table(table_name), keys)
    stored[0].forget()
    assert app.AsyncResult(results[0].id).status == "PENDING"
    setting.assert_stored(setting.resource.Table(table_name), dict.fromkeys([*keys][1:], 1))


def test_a_failure(app: Any) -> None:
    result = app.AsyncResult(app.task(fail, shared=False).delay().id)
    assert result.status == "FAILURE"
    with pytest.raises(ArithmeticError):
        result.get(timeout=10)


def test_a_chord(app: Any) -> None:
    """The backend counts the finished tasks of a chord in an item."""
    task, group = app.task(add, shared=False), uuid.uuid4().hex
    app.backend.apply_chord((group, [task.delay(number, 1) for number in range(3)]), task.s(1))
    assert app.GroupResult.restore(group).join() == [1, 2, 3]
    assert [app.backend.incr(app.backend.get_key_for_chord(group)) for _ in range(3)] == [1, 2, 3]
