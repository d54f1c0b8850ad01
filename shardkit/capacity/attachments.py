"""What a meter or a budget has on a client: its attachments there, and what it asks of the calls that it sees."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shardkit.capacity.charge import KeyValue
from shardkit.runtime.hooks import observe, unobserve
from shardkit.runtime.observers import Call

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Attached", "Attachment", "ClientObserver", "ask_for_units", "take_units"]

_ASK = "ReturnConsumedCapacity"
_READS = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})


def ask_for_units(call: Call) -> bool:
    """Ask for what a call consumes, unless its caller did; say whether that was done here."""
    params = call.params
    asked: bool = params.get(_ASK, "NONE") == "NONE"
    if asked:
        # Reads of a table have no part for an index: there the answer is shorter, and says the same.
        params[_ASK] = "TOTAL" if call.operation in _READS and "IndexName" not in params else "INDEXES"
    return asked


def take_units(parsed: dict[str, Any], *, asked: bool) -> Any:
    """Give the response's ``ConsumedCapacity``; who asked takes it out, so that the caller does not see it.

    That is the first who saw the request, and the last who sees the response.
    """
    return parsed.pop("ConsumedCapacity", None) if asked else parsed.get("ConsumedCapacity")


class Attachment:
    """A meter or a budget on a client, a table or a session, until ``detach`` or the end of its ``with``."""

    def detach(self) -> None:
        """See no more calls through this attachment; doing it twice does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Give the attachment; it sees calls already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Detach."""
        self.detach()


class Attached(Attachment):
    """An attachment to one client: for one table or for all (None), for one logical key or for all (None)."""

    def __init__(
        self, observer: ClientObserver, table: str | None, keys: Mapping[str, str], key: KeyValue = None
    ) -> None:
        self._observer = observer
        self.table = table
        self.keys = keys
        self.key = key

    def detach(self) -> None:
        """See no more calls through this attachment; doing it twice does nothing."""
        self._observer.detach(self)


class ClientObserver(ABC):
    """What sees the calls of one client, however many attachments it has there: a call is counted once.

    ``_only`` are the tables to look at (None: all), ``_keys`` their partition keys' names, as far as they are known.
    """

    def __init__(self, client: Any) -> None:
        # Weak: a client that is dropped while it is observed must not live on through its own handlers.
        self._client = weakref.ref(client)
        self._changing = threading.Lock()
        self._attached: tuple[Attached, ...] = ()
        self._only: frozenset[str] | None = None
        self._keys: Mapping[str, str] = {}

    def attach(self, table: str | None, keys: Mapping[str, str], key: KeyValue = None) -> Attached:
        """See the calls to a table, or to all, from now on."""
        attached = Attached(self, table, keys, key)
        with self._changing:
            self._set((*self._attached, attached))
            client = self._client()
            if client is not None:
                observe(client, self)
        return attached

    def detach(self, attached: Attached) -> None:
        """See no more calls of an attachment; those that are under way are seen to their end."""
        with self._changing:
            self._set(tuple(known for known in self._attached if known is not attached))
            client = self._client()
            if not self._attached and client is not None:
                unobserve(client, self)

    def _set(self, attached: tuple[Attached, ...]) -> None:
        self._attached = attached
        if not attached:
            return  # what is under way is looked at as before
        tables = [known.table for known in attached]
        self._only = frozenset(table for table in tables if table is not None) if all(tables) else None
        self._keys = {table: name for known in attached for table, name in known.keys.items()}

    @abstractmethod
    def before(self, call: Call) -> None:
        """See the request's wire parameters; may add to them."""

    @abstractmethod
    def failed(self, call: Call, response: Mapping[str, Any]) -> None:
        """See what an attempt met, as an error response."""

    @abstractmethod
    def after(self, call: Call, parsed: dict[str, Any]) -> None:
        """See the wire response (or the error, under ``Error``)."""
