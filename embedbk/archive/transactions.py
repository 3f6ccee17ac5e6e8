"""A transaction of a job that puts ledgers into a log: it was done before, it is done, or it is given up whole (P8.5).

Decides nothing about what is put in: `restoring` and `importing` do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from embedbk.client.log import Log
from embedbk.client.splicing import SpliceOutcome, Staging
from embedbk.errors import EmbedbkError

__all__ = ["answered", "done_before", "given_up_unless_done", "is_done_by_another"]


T = TypeVar("T")


def done_before(log: Log, application: str | None, number: int) -> SpliceOutcome | None:
    """The outcome of this transaction of an application, or of a later one, if it was done before. None: not as far as
    is known; the splice finds out."""
    if application is None:
        return None
    with contextlib.suppress(EmbedbkError):  # There is no such log yet, say.
        done = log.spliced(application)
        if done is not None and done.number >= number:
            return done._replace(is_replay=True)
    return None


def answered(answers: Iterable[T], tasks: Sequence[object]) -> list[T]:
    """The answers of all tasks. Raises EmbedbkError: some gave none; whatever they had to stage would be left out."""
    found = list(answers)
    if len(found) != len(tasks):
        raise EmbedbkError(
            f"{len(found)} answers came of {len(tasks)} tasks; nothing was appended", hint="run the job again"
        )
    return found


def is_done_by_another(outcome: SpliceOutcome, terms: Staging) -> bool:
    """Whether another job was first, so that nothing of this one is in the log."""
    return outcome.is_replay and outcome.job != terms.job


@contextlib.contextmanager
def given_up_unless_done(log: Log, terms: Staging) -> Iterator[None]:
    """What was staged inside is given up when an error ends it."""
    try:
        yield
    except EmbedbkError:
        with contextlib.suppress(EmbedbkError):  # It is given up anyway when its time is over.
            log.unstage(terms)
        raise
