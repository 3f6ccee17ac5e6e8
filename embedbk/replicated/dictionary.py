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

_parts = msgspec.msgpack.Decoder(list[msgspec.Raw])
_saved = msgspec.msgpack.Decoder(dict[str, msgspec.Raw])


class _Machine(StateMachine):
    offset = 0

    def __init__(self) -> None:
        # As they are in the log: what `get` gives may be changed by who has it, and is no part of the state.
        self.values: dict[str, bytes] = {}

    def apply(self, command: bytes, offset: int) -> bool:
        key, *value = _parts.decode(command)
        name = msgspec.msgpack.decode(key)
        was_there = name in self.values
        if value:
            self.values[name] = bytes(value[0])
        else:
            self.values.pop(name, None)
        self.offset = offset + 1
        return was_there

    def save(self) -> list[bytes]:
        return [msgspec.msgpack.encode({name: msgspec.Raw(value) for name, value in self.values.items()})]

    def load(self, parts: Iterator[bytes], offset: int) -> None:
        values = _saved.decode(b"".join(parts))
        self.values, self.offset = {name: bytes(value) for name, value in values.items()}, offset


class ReplicatedDict(Replica[_Machine], MutableMapping[str, Any]):
    """Keys are text, values what MessagePack holds. Every copy can be read, as fresh as `freshness` tells; only the
    leader changes it, by setting and deleting: a value that is read is the reader's own."""

    def __init__(self, bk: Client, name: str, *, password: bytes = b"") -> None:
        super().__init__(bk, name, _Machine(), password=password)

    def __getitem__(self, key: str) -> Any:
        return msgspec.msgpack.decode(self.machine.values[key])

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise UsageError(f"{key!r} is no key: text is; nothing was changed")
        try:
            command = msgspec.msgpack.encode((key, value))
        except (TypeError, ValueError, OverflowError) as strange:
            raise UsageError(f"{key!r}: {strange}; nothing was changed") from strange
        self.leader.submit(command)

    def __delitem__(self, key: str) -> None:
        if not isinstance(key, str):
            raise KeyError(key)
        if not self.leader.submit(msgspec.msgpack.encode((key,))):
            raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.machine.values)

    def __len__(self) -> int:
        return len(self.machine.values)
