"""P11.5: whether a bookie answers that is not registered, asked by somebody who is about to call it gone."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import LAST_LOG_ID, EntryLogsAnswer, EntryLogsRequest
from embedbk.codec.messages import ErrorAnswer
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.presence_query import PRESENCE_NS, PresenceQuery
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member

B1 = Member("b1", b"1" * 16)


def begun() -> PresenceQuery:
    query = PresenceQuery(B1)
    (sent,) = query.step(Started(5))
    assert isinstance(sent, Send)
    assert (sent.member, sent.control) == (B1, EntryLogsRequest(B1.incarnation, LAST_LOG_ID))
    return query


@pytest.mark.parametrize(
    ("answer", "is_there"),
    [
        (EntryLogsAnswer(Status.OK), True),
        (EntryLogsAnswer(Status.WRONG_INCARNATION), False),
        (ErrorAnswer("no"), False),
    ],
)
def test_only_an_answer_of_these_directories_says_that_it_is_there(answer: Any, is_there: bool) -> None:
    query = begun()
    (ended,) = query.step(Answered(7, "presence", B1, answer))
    assert isinstance(ended, Ended)
    assert (ended.error, ended.result) == (None, is_there)
    assert query.step(Tick(5 + PRESENCE_NS)) == []
    assert query.step(Answered(8, "presence", B1, answer)) == [], "it has ended"


def test_silence_is_no_answer_after_two_seconds() -> None:
    """P7.9: a stopped process takes connections as well."""
    query = begun()
    assert query.step(Tick(4 + PRESENCE_NS)) == []
    (ended,) = query.step(Tick(5 + PRESENCE_NS))
    assert ended.result is False  # type: ignore[union-attr]
    (ended,) = begun().step(SendFailed(6, "presence", B1, "no link"))
    assert ended.result is False  # type: ignore[union-attr]
