"""A bookie's links to its clients, and how its answers leave.

Knows which links there are and how many requests of each are unanswered. Decides which answers leave together: those of
one step to the adds of a link in one message, and those to explicit LACs behind all others of the step. A link that
takes no more answers is ended. Leaves to others: which requests are taken (bookie_node.py), and what is answered
(core/bookie.py).
"""

from __future__ import annotations

import logging

from embedbk.codec.add_messages import AddAnswer, is_final
from embedbk.codec.lac_messages import ExplicitLacAnswer
from embedbk.codec.messages import encode_add_answers, encode_message
from embedbk.core.bookie_words import Reply
from embedbk.ports.transport import Transport

__all__ = ["ANSWERS_PER_MESSAGE_MAX", "ClientLinks"]

logger = logging.getLogger(__name__)

ANSWERS_PER_MESSAGE_MAX = 1 << 14  # Answers to adds; more in one step leave in several messages.


class ClientLinks:
    """The links of one bookie's clients, without the one to the metadata quorum.

    unanswered: by link, how many of its requests are not answered yet. Others only read it.
    """

    def __init__(self, bookie_id: str, transport: Transport) -> None:
        self.unanswered: dict[int, int] = {}
        self._bookie_id = bookie_id
        self._transport = transport
        self._add_answers: dict[int, list[tuple[int, AddAnswer]]] = {}  # Answers of this step, by link.
        self._lac_answers: list[Reply] = []  # Answers of this step to explicit LACs.

    def begin(self, link: int) -> None:
        """The link is up."""
        self.unanswered[link] = 0

    def lose(self, link: int) -> None:
        """The link is down."""
        self.unanswered.pop(link, None)

    def drop(self, link: int, reason: str, level: int = logging.WARNING) -> None:
        """End a link here; bodies of it that are still on their way count for nothing."""
        logger.log(level, "bookie %s drops a link: %s", self._bookie_id, reason)
        self.unanswered.pop(link, None)
        self._transport.drop(link, reason)

    def drop_all(self, reason: str) -> None:
        for link in list(self.unanswered):
            self.drop(link, reason)

    # Requests.

    def note_asked(self, link: int) -> None:
        """A request of this link was taken, and one final answer follows."""
        if link in self.unanswered:
            self.unanswered[link] += 1

    def note_answered(self, link: int) -> None:
        """A request of this link was answered, or needs no answer any more, not by `reply`."""
        if link in self.unanswered:
            self.unanswered[link] -= 1

    # Answers.

    def reply(self, reply: Reply) -> bool:
        """Have an answer leave now, or with others of its step. False: its link is gone."""
        unanswered = self.unanswered.get(reply.link)
        if unanswered is None:
            return False
        if is_final(reply.control):
            self.unanswered[reply.link] = unanswered - 1
        if isinstance(reply.control, ExplicitLacAnswer):
            self._lac_answers.append(reply)  # No haste: behind the readers that a hint has woken.
        elif isinstance(reply.control, AddAnswer):
            self._add_answers.setdefault(reply.link, []).append((reply.request_id, reply.control))
        else:
            self._send(reply.link, encode_message(reply.request_id, reply.control, reply.frames))
        return True

    def send_gathered(self) -> None:
        """Have the answers leave that waited for the end of the step."""
        if self._lac_answers:
            self._send_lac_answers()
        if self._add_answers:
            self._send_add_answers()

    def send(self, link: int, pieces: list[bytes | memoryview]) -> None:
        """Have a message leave now, unless its link is gone."""
        if link in self.unanswered:
            self._send(link, pieces)

    def _send_lac_answers(self) -> None:
        answers, self._lac_answers = self._lac_answers, []
        for answer in answers:
            if answer.link in self.unanswered:
                self._send(answer.link, encode_message(answer.request_id, answer.control))

    def _send_add_answers(self) -> None:
        """One message for each link, with what this step has answered to its adds."""
        answers, self._add_answers = self._add_answers, {}
        for link, given in answers.items():
            for begin in range(0, len(given), ANSWERS_PER_MESSAGE_MAX):
                if link in self.unanswered:
                    self._send(link, encode_add_answers(given[begin : begin + ANSWERS_PER_MESSAGE_MAX]))

    def _send(self, link: int, pieces: list[bytes | memoryview]) -> None:
        if not self._transport.send(link, pieces):
            # An answer that is lost would leave its client waiting; a lost link it understands. Most often it has left.
            self.drop(link, "it is gone, or its queue of answers is full", logging.INFO)
