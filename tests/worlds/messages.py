"""The messages of a small world, each distinct one once: a set of them is the bits of one number.

Decides when two messages are one: by who sent them, their content and, where that is not enough, a count; orphans,
which nobody waits for, by their content alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from embedbk.codec.bookie_fields import Status
from embedbk.codec.ledger_metadata import LedgerState, decode_ledger_metadata
from embedbk.core.client_words import Answered, Send
from embedbk.core.metadata_words import ReadKey, Transact
from embedbk.ids import Member
from tests.worlds.reductions import orphan

__all__ = ["Answer", "Messages", "Request", "bits", "id_of"]


class Request(NamedTuple):
    client: int
    effect: Any  # Send, Transact or ReadKey.
    bookie: int  # -1: to the metadata.


class Answer(NamedTuple):
    request: int
    event: Any


class Messages:
    """Requests and answers by number."""

    def __init__(self, clients: int, members: Sequence[Member]) -> None:
        self.members = members
        self.of_client = [0] * clients  # Bits of its requests and of answers to them.
        self.orphans = 0  # Bits of those that nobody waits for.
        self.is_answer: list[bool] = []
        self.bookie_of: list[int] = []  # Of each: the bookie that it is for, or from; -1: the metadata.
        self.answers_to: dict[int, int] = {}  # Request -> bits of its answers.
        self._all: list[Request | Answer] = []
        self._keys: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._orphan_of: dict[int, int] = {}  # Request -> the bit of its orphan, 0 where it does nothing.
        self._renamed: dict[
            tuple[int, tuple[int, ...]], int
        ] = {}  # (messages, new names of clients) -> messages.
        self._names: dict[int, str] = {}

    def __getitem__(self, number: int) -> Request | Answer:
        return self._all[number]

    def __len__(self) -> int:
        return len(self._all)

    def request(self, number: int) -> Request:
        found = self._all[number]
        assert isinstance(found, Request)
        return found

    def number(self, message: Request | Answer, key: Any) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._all)
            self._all.append(message)
            self._keys.append(key)
            request = self._all[message.request] if isinstance(message, Answer) else message
            assert isinstance(request, Request)
            if isinstance(message, Answer):
                self.answers_to[message.request] = self.answers_to.get(message.request, 0) | 1 << number
            self.is_answer.append(isinstance(message, Answer))
            self.bookie_of.append(request.bookie)
            if request.client >= 0:
                self.of_client[request.client] |= 1 << number
        return number

    def answer(self, request: int, event: Any) -> int:
        return self.number(Answer(request, event), ("answer", request, id_of(event)))

    def orphan(self, number: int) -> int:
        bit = self._orphan_of.get(number)
        if bit is None:
            request, bit = self._all[number], 0
            assert isinstance(request, Request)
            effect = orphan(request.effect)
            if effect is not None:
                bit = 1 << self.number(Request(-1, effect, request.bookie), ("orphan", id_of(effect)))
                self.orphans |= bit
            self._orphan_of[number] = bit
        return bit

    def with_names(self, mask: int, names: tuple[int, ...] | None) -> int:
        if names is None:
            return mask
        result = self._renamed.get((mask, names))
        if result is None:
            result = 0
            for number in bits(mask):
                result |= 1 << self._with_name(number, names)
            self._renamed[mask, names] = result
        return result

    def _with_name(self, number: int, names: tuple[int, ...]) -> int:
        message = self._all[number]
        if isinstance(message, Answer):
            request = self._with_name(message.request, names)
            return self.answer(request, message.event)
        if message.client <= 0:
            return number
        client, identity = names[message.client], self._keys[number]
        return self.number(message._replace(client=client), (client, *identity[1:]))

    def name(self, number: int) -> str:
        """What the delivery of this message is called; made once, most are never looked at."""
        name = self._names.get(number)
        if name is None:
            message = self._all[number]
            if isinstance(message, Answer):
                request = self._all[message.request]
                assert isinstance(request, Request)
                name = f"client {request.client} hears {_words(message.event)}"
            else:
                taker = self.members[message.bookie].bookie_id if message.bookie >= 0 else "metadata"
                name = f"{taker} takes {_words(message.effect)} of client {message.client}"
            self._names[number] = name
        return name


def id_of(effect: Any) -> str:
    """Equal for equal effects and events; bodies are told by their bytes."""
    frames = getattr(effect, "frames", ())
    if not frames:
        return repr(effect)
    bodies = [(bytes(header) if isinstance(header, bytes) else repr(header), bytes(getattr(frame, "body", frame)))
              for header, frame in frames]  # fmt: skip
    return repr((type(effect).__name__, effect.tag, effect.member, effect.control, bodies))


def _words(told: Any) -> str:
    if isinstance(told, Send):
        return f"{told.tag}"
    if isinstance(told, Transact):
        value = decode_ledger_metadata(told.then[0].value)
        return f"a change to {LedgerState(value.state).name}, {len(value.fragments)} fragments"
    if isinstance(told, ReadKey):
        return "a read"
    if isinstance(told, Answered):
        status = getattr(told.control, "status", None)
        return f"{told.tag} {Status(status).name if status is not None else '?'}"
    return type(told).__name__


def bits(mask: int) -> list[int]:
    found = []
    while mask:
        bit = mask & -mask
        found.append(bit.bit_length() - 1)
        mask ^= bit
    return found
