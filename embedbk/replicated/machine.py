"""The interface of an application: a state that follows from its commands alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

__all__ = ["StateMachine"]


class StateMachine(ABC):
    """The same commands in the same order make the same state, in any process: nothing in it may ask a clock, chance,
    the environment or the network. Used by one thread at a time."""

    log_id: str = ""
    """The id of the log that the offset counts in, set by the replica before it applies anything; "": not known. A
    machine in memory has this attribute; one in a file keeps it there, durable when it is set."""

    @property
    @abstractmethod
    def offset(self) -> int:
        """The place in the log of the next command: every one before it is in the state, and none from it on. A machine
        in memory begins at 0; one in a file keeps this in the file, in the transaction of the command itself."""

    @abstractmethod
    def apply(self, command: bytes, offset: int) -> object:
        """Carry out the command at this offset, which is `self.offset` or above (what lies between is no command);
        `self.offset` is one more then. The result goes to the caller that submitted it.

        An exception ends this copy: a command that can fail reports that by its result, the same everywhere.
        """

    @abstractmethod
    def save(self) -> Iterable[bytes]:
        """The state at `self.offset`, in parts of any size. No command is applied meanwhile."""

    @abstractmethod
    def load(self, parts: Iterator[bytes], offset: int) -> None:
        """Become the state that another copy saved at this offset. parts raises StorageError at its end where it is not
        what was saved: then, as after any error, the state is what it was before."""
