"""A dictionary that is the same on several nodes; also an example of a small machine."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import msgspec

from embedbk.client.client import Client
from embedbk.errors import UsageError
from embedbk.replicated.machine import StateMachine
from embedbk.replicated.replica import Replica

__all__ = ["ReplicatedDict"]


class _Machine(StateMachine):
    offset = 0

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def apply(self, command: bytes, offset: int) -> bool:
        key, *value = msgspec.msgpack.decode(command)
        was_there = key in self.values
        if value:
            self.values[key] = value[0]
        else:
            self.values.pop(key, None)
        self.offset = offset + 1
        return was_there

    def save(self) -> list[bytes]:
        return [msgspec.msgpack.encode(self.values)]

    def load(self, parts: Iterator[bytes], offset: int) -> None:
        self.values, self.offset = msgspec.msgpack.decode(b"".join(parts)), offset


class ReplicatedDict(Replica[_Machine], MutableMapping[str, Any]):
    """Keys are text, values what MessagePack holds. Every copy can be read, as fresh as `freshness` tells; only the
    leader changes it."""

    def __init__(self, bk: Client, name: str, *, password: bytes = b"") -> None:
        super().__init__(bk, name, _Machine(), password=password)

    def __getitem__(self, key: str) -> Any:
        return self.machine.values[key]

    def __setitem__(self, key: str, value: Any) -> None:
        try:
            command = msgspec.msgpack.encode((str(key), value))
        except (TypeError, ValueError, OverflowError) as strange:
            raise UsageError(f"{key!r}: {strange}; nothing was changed") from strange
        self.leader.submit(command)

    def __delitem__(self, key: str) -> None:
        if not self.leader.submit(msgspec.msgpack.encode((key,))):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.machine.values)

    def __len__(self) -> int:
        return len(self.machine.values)
