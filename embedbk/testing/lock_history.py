"""Whether the answers to clients of locks fit one order of asking (P9.3): by the answers alone.

Each answer has the revision at which the client asked, the epoch under which it holds (0: it waits), and the revision
as of which that is true. So it can be compared with every other answer about the same lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from embedbk.codec.metadata_messages import Acquire, Claimed, Release, TxnDone
from embedbk.testing.history import Call
from embedbk.testing.violation import Violation

__all__ = ["check_locks"]


def check_locks(calls: Iterable[Call]) -> int:
    """Check the answers; return how many holds were handed over.

    Raises:
        Violation: two clients got the same hold or place; a client held while another did, or one that asked later came
            before it.
    """
    told: dict[str, list[tuple[str, Claimed]]] = defaultdict(list)
    released: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for call in calls:
        if isinstance(call.operation, Acquire) and isinstance(call.result, Claimed):
            told[call.operation.name].append((call.client, call.result))
        elif isinstance(call.operation, Release) and isinstance(call.result, TxnDone) and call.result.is_done:
            released[call.operation.name].append((call.client, call.operation.epoch, call.result.revision))
    for name, answers in told.items():
        _check_one(name, answers)
        for client, epoch, revision in released[name]:
            _check_release(name, client, epoch, revision, answers)
    holds = {
        (name, each.epoch) for name, answers in told.items() for _, each in answers if each.epoch > each.asked
    }
    return len(holds)


def _check_one(name: str, answers: list[tuple[str, Claimed]]) -> None:
    asked_by: dict[int, str] = {}
    held_since: dict[int, int] = {}  # Epoch -> at which revision its holder asked.
    for client, claim in answers:
        if not 0 < claim.asked <= claim.revision or not (
            claim.epoch == 0 or claim.asked <= claim.epoch <= claim.revision
        ):
            raise Violation("I73", f"lock {name}: {client} was told {claim}, which no lock can be")
        if asked_by.setdefault(claim.asked, client) != client:
            raise Violation("I73", f"lock {name}: {client} and {asked_by[claim.asked]} share {claim}")
        if claim.epoch and held_since.setdefault(claim.epoch, claim.asked) != claim.asked:
            raise Violation("I73", f"lock {name}: epoch {claim.epoch} was given twice: {claim}")
    for (epoch, asked), (next_epoch, next_asked) in _pairs(sorted(held_since.items())):
        if next_asked <= asked:
            raise Violation(
                "I73",
                f"lock {name}: asked at {next_asked}, held from {next_epoch}; asked at {asked}, held from {epoch}",
            )
    for client, claim in answers:
        for epoch, asked in held_since.items():
            if claim.epoch and claim.epoch < epoch <= claim.revision:
                raise Violation("I73", f"lock {name}: {client} holds as of {claim}, and {epoch} was given")
            if not claim.epoch and claim.asked < asked and epoch <= claim.revision:
                raise Violation("I73", f"lock {name}: {client} was passed over, {claim}, by {asked}")


def _check_release(
    name: str, client: str, epoch: int, revision: int, answers: list[tuple[str, Claimed]]
) -> None:
    """A hold that was given away under an epoch was held until then."""
    for _, claim in answers:
        if epoch and epoch < claim.epoch < revision:
            raise Violation(
                "I73", f"lock {name}: {client} released {epoch} at {revision}; {claim} came before"
            )


def _pairs(holds: list[tuple[int, int]]) -> Iterable[tuple[tuple[int, int], tuple[int, int]]]:
    return zip(holds, holds[1:], strict=False)
