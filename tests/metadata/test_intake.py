"""Which request is run next, and which is put off."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from embedbk.codec.metadata_messages import BUSY, Get, MetadataRequest, Refusal
from embedbk.metadata import intake as intake_module
from embedbk.metadata.intake import Intake
from embedbk.metadata.vocabulary import LinkLost, RequestReceived


def asked(link: int, sequence: int, session: int = 7) -> RequestReceived:
    return RequestReceived(0, link, MetadataRequest(session, sequence, 1, Get("/a")))


def taken(intake: Intake) -> list[tuple[int, int]]:
    found = []
    while (event := intake.take(5)) is not None:
        assert event.now_ns == 5
        found.append((event.link, event.request.sequence if isinstance(event, RequestReceived) else 0))
    return found


def test_links_have_turns_and_each_its_order() -> None:
    intake = Intake()
    for sequence in (1, 2, 3):
        assert intake.put(asked(1, sequence)) is None
    intake.put(asked(2, 9))
    intake.end_link(LinkLost(0, 1))
    intake.put(asked(3, 8))
    assert len(intake) == 6
    assert taken(intake) == [(1, 1), (2, 9), (3, 8), (1, 2), (1, 3), (1, 0)]
    assert len(intake) == 0


def test_what_is_asked_again_while_it_waits_waits_once() -> None:
    """METADATA.md, 5: a crowd that asks again makes no crowd twice as large."""
    intake = Intake()
    for _ in range(5):
        assert intake.put(asked(1, 1)) is None
        assert intake.put(asked(2, 1, session=8)) is None
    for _ in range(2):
        intake.put(asked(3, 1, session=0))  # Nobody's sequences.
    assert len(intake) == 4
    taken(intake)
    intake.put(asked(1, 1))  # Run, and asked again: the catalog has its answer.
    assert len(intake) == 1


def test_nobody_takes_all_the_places() -> None:
    """REQUESTS_WAITING_MAX, LINK_SHARE, LINK_LEAST: one link floods, and every other has its few places."""
    intake = Intake()
    refusal = None
    sequence = 0
    while refusal is None:
        sequence += 1
        refusal = intake.put(asked(1, sequence))
    assert isinstance(refusal, Refusal)
    assert refusal.code == BUSY
    assert f"{sequence - 1} of them on this link; allowed are 4096" in refusal.text
    for link in range(2, 1025):
        assert intake.put(asked(link, 1)) is None
    for sequence in range(10, 20):
        for link in range(2, 3000):
            intake.put(asked(link, sequence))
    assert len(intake) <= intake_module.REQUESTS_WAITING_MAX


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_between_in_and_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "REQUESTS_WAITING_MAX", 40)
    chance = random.Random(seed)
    intake = Intake()
    put: Counter[tuple[int, int]] = Counter()
    out: Counter[tuple[int, int]] = Counter()
    for sequence in range(1, 500):
        link = chance.randrange(1, 6)
        if intake.put(asked(link, sequence)) is None:
            put[link, sequence] += 1
        for _ in range(chance.randrange(3)):
            event = intake.take(5)
            if isinstance(event, RequestReceived):
                out[event.link, event.request.sequence] += 1
    out.update(taken(intake))
    assert out == put
    assert not intake._waiting
    assert not intake._links
