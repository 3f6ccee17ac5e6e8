"""I32 at the start of a bookie that may have lost something: the real core watched, and broken on purpose."""

from __future__ import annotations

import pytest

from embedbk.codec.lac_messages import LacRequest
from embedbk.testing.invariants import Invariants
from embedbk.testing.invariants_fencing import fence_answer_is_durable
from embedbk.testing.violation import Violation
from tests.scenarios.watched import Scene, WatchedNode, scene


def after_a_loss(records: int | None = None) -> tuple[Scene, WatchedNode]:
    """Three acknowledged entries; then b1 loses its newest records (None: all), and starts again."""
    story = scene(bookies=4)
    for number in range(3):
        story.add(b"entry %d" % number)
        story.world.settle()
    node = story.world.nodes["b1"]
    assert isinstance(node, WatchedNode)
    node.lose(records)
    return story, node


def ask(story: Scene, node: WatchedNode) -> None:
    story.world.ask("b1", LacRequest(node.member.incarnation, story.ledger_id))


@pytest.mark.parametrize("records", [None, 1])
def test_a_bookie_that_enters_limbo_first_breaks_nothing(records: int | None) -> None:
    """I32: fenced and in limbo, durably, and only then an answer; what was lost is no breach of I4."""
    story, node = after_a_loss(records)
    world, reached = story.world, story.world.invariants.sometimes.reached
    ask(story, node)
    node.enter_limbo()
    ask(story, node)
    assert reached["served after an unclean start"] == 0
    node.sync()
    ask(story, node)
    assert reached["unclean start"] == reached["served after an unclean start"] == 1
    story.add(b"entry 3")
    world.run(seconds=20)
    assert story.writer.confirmed == 3  # b1 was replaced.
    world.end(story.ledger_id)


def test_serving_before_the_ledgers_are_listed_is_found() -> None:
    """I32: "before the first client request is served"."""
    story, node = after_a_loss()
    node.core.entering.is_serving = True
    with pytest.raises(Violation, match=r"^I32: .*serves after an unclean start"):
        ask(story, node)


def test_serving_before_limbo_is_durable_is_found() -> None:
    """I32: a crash would take the limbo back that somebody relied on."""
    story, node = after_a_loss()
    node.enter_limbo()
    node.core.entering.is_serving = True
    with pytest.raises(Violation, match=r"^I32: .*not in durable limbo"):
        ask(story, node)


def test_a_fence_that_was_told_is_there_again_when_it_serves() -> None:
    """I19: recovery closed the ledger with b1's fence; b1 forgot it, and is named still."""
    story, node = after_a_loss()
    node.enter_limbo()
    node.sync()
    ask(story, node)
    assert story.recover().ended.error is None
    node.lose()
    node.core.entering.is_serving = True
    with pytest.raises(Violation, match=r"^I19: .*forgot the fence"):
        ask(story, node)


def test_ledgers_that_are_gone_are_fenced_when_their_record_is_durable() -> None:
    """I19, P7.4: one record fences all of them; a start finds them again, whatever it may have forgotten."""
    judge = Invariants()
    judge.on_started("b1", "bookie", b"b1" * 8, 0, False)
    bookie = judge.ghost.bookies["b1"]
    bookie.gone[7] = range(3, 6)
    bookie.queued.append((7, 3, ()))
    for durable in (6, 7):
        judge.on_durable("b1", durable)
        if durable == 6:
            with pytest.raises(Violation, match="I19"):
                fence_answer_is_durable(bookie, 4, 0)
    fence_answer_is_durable(bookie, 4, 0)
    with pytest.raises(Violation, match="I19"):
        fence_answer_is_durable(bookie, 6, 0)
    judge.on_started("b1", "bookie", b"b1" * 8, 0, True)
    with pytest.raises(Violation, match="I19"):
        fence_answer_is_durable(bookie, 4, 0)
    judge.on_found_dropped("b1", [(3, 5)])
    fence_answer_is_durable(bookie, 5, 0)
