"""Watching adds that go past a writer's core: seen where they are sent, and where their answers arrive.

A client of a world may seal, send and count in C (`transports/sim_adds.py`; native/SHORTCUTS.md, "Adds in C"). Its core
receives that later, so an observer of cores alone would see an acknowledgement without its answers. Here the bodies
themselves are read, as they leave and as they arrive, and reported as what they mean: this frame was sent to that seat,
this seat has answered OK to exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from embedbk.codec.add_messages import AddAnswer, AddAnswers, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.frame import frame_of
from embedbk.codec.messages import decode_message
from embedbk.core.client_words import Send
from embedbk.core.writer import Writer
from embedbk.errors import PeerError
from embedbk.host.writing import Writing

__all__ = ["CourseWatch"]

Asked = tuple[Writer, Send]


class CourseWatch:
    """What watches the courses of one world.

    Args:
        writings_of: the writing handles of a client.
        tell: a hook of the observers, with its arguments.
    """

    def __init__(self, writings_of: Callable[[str], Iterable[Writing]], tell: Callable[..., None]) -> None:
        self._writings_of = writings_of
        self._tell = tell
        self._asked: dict[str, dict[int, Asked]] = {}  # Requests under way, by client and request id.

    def on_sent(self, client: str, bookie: str, body: bytes) -> None:
        """A client has sent this from C."""
        message = decode_message(memoryview(body))
        request, (header, entries) = message.control, message.frames[0]
        assert isinstance(request, AddRequest)
        core = next(
            writing.core
            for writing in self._writings_of(client)
            if writing.core.in_flight.nonce == request.nonce and writing.core.ledger_id == header.ledger_id
        )
        seating = core.in_flight.seating(request.seating)
        assert seating is not None
        assert seating.member.bookie_id == bookie
        frame = frame_of(entries, header.ledger_id)
        send = Send(seating.member, request, ("add", seating.number, frame.first_entry), [(b"", frame)])
        self._asked.setdefault(client, {})[message.request_id] = (core, send)
        self._tell("on_add_sent", client, core, frame, send)

    def on_delivery(self, sender: str, client: str, body: bytes) -> None:
        """A body arrives at a client."""
        asked = self._asked.get(client)
        if not asked:
            return
        try:
            message = decode_message(body)
            if isinstance(message.control, AddAnswer):
                answers = [(message.request_id, message.control)]
            elif isinstance(message.control, AddAnswers):
                answers = message.control.unpack()
            else:
                return
        except PeerError:
            return  # Damaged on the way.
        for request_id, answer in answers:
            found = asked.get(request_id)
            if found is not None and found[1].member.bookie_id == sender and _is_ok(answer, *found):
                del asked[request_id]
                core, send = found
                self._tell("on_add_answered", client, core, send)

    def forget(self, client: str) -> None:
        """Its process is over."""
        self._asked.pop(client, None)


def _is_ok(answer: AddAnswer, core: Writer, send: Send) -> bool:
    request, (_, frame) = send.control, send.frames[0]
    assert isinstance(request, AddRequest)
    is_ours = (answer.nonce, answer.seating, answer.recovery) == (request.nonce, request.seating, False)
    of = (answer.ledger_id, answer.first_entry, answer.last_entry)
    is_of_it = of == (core.ledger_id, frame.first_entry, frame.last_entry)
    return answer.status == Status.OK and is_ours and is_of_it
