"""Where a ledger of a log ended, put into the log's list (P8.2 iv): by itself, or in the transaction that closes it.

Decides what the list is then. When that is put, and what follows where the list is another by now, `log_rolling`
decides, and for the close `change_publishing`.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from embedbk.codec.log_list import LogList, encode_log_list, log_key_path, log_owner_path
from embedbk.codec.metadata_messages import Compare, Put
from embedbk.core.metadata_words import NOTHING, Alongside

__all__ = ["EndRecord", "recording", "with_end"]


def with_end(log_list: LogList, ledger_id: int, last_entry: int, length: int | None) -> LogList | None:
    """The list with the end of this ledger, and the place of the next one. None: the list has it already, or does not
    name the ledger any more."""
    segments = list(log_list.segments)
    for index, segment in enumerate(segments):
        if segment.ledger_id == ledger_id and segment.last_entry is None:
            segments[index] = replace(segment, last_entry=last_entry, length=length)
            behind = segments[index + 1 : index + 2]
            if behind and behind[0].first_offset is None and segment.first_offset is not None:
                first_offset = segment.first_offset + last_entry + 1
                segments[index + 1] = replace(behind[0], first_offset=first_offset)
            return replace(log_list, segments=tuple(segments))
    return None


def recording(name: str, epoch: int, revision: int, recorded: LogList) -> Alongside:
    """Put this list in the place of the one with this revision, while the epoch is the newest."""
    list_key = log_key_path(name)
    when = (Compare(list_key, revision), Compare(log_owner_path(name), epoch))
    return Alongside(when, (Put(list_key, encode_log_list(recorded)),))


class EndRecord(Struct, frozen=True):
    """The list that an owner published last, for the transaction that closes a ledger of it: the end is recorded in
    that very one, where list and epoch are as the owner knows them.

    has_lengths: the list records payload bytes (LEVEL_OF_PAGES)."""

    name: str
    epoch: int
    ledger_id: int
    log_list: LogList
    revision: int
    has_lengths: bool

    def recorded(self, last_entry: int, length: int) -> LogList | None:
        return with_end(self.log_list, self.ledger_id, last_entry, length if self.has_lengths else None)

    def beside(self, last_entry: int, length: int) -> Alongside:
        """What the transaction compares and puts beside the ledger."""
        recorded = self.recorded(last_entry, length)
        return NOTHING if recorded is None else recording(self.name, self.epoch, self.revision, recorded)
