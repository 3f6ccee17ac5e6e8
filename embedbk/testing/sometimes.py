"""Facts that a campaign must reach now and then, or it looked at nothing (2.10, S2): the one list of them."""

from __future__ import annotations

from collections import Counter

__all__ = ["SOMETIMES", "Sometimes"]

# Name -> what was seen. A run of few seeds reaches some, a campaign all.
SOMETIMES = {
    "add acknowledged": "a creator was acknowledged",
    "add refused for a while": "a bookie answered BUSY, and the add that was sent again was taken",
    "add refused behind a fence": "a bookie answered FENCED to a normal add",
    "add refused in limbo": "a bookie answered IN_LIMBO",
    "add repeated": "a bookie compared an add with what it held",
    "answer unknown": "a bookie answered UNKNOWN",
    "answers counted": "answers to adds were counted beside the core, and told to it at once",
    "avoided bookie seated": "a creator gave a seat to a bookie that had failed under it lately, as no other was left",
    "bookie stopped in good order": "a bookie was stopped, and did not wait for its last word any more",
    "bookie restarted": "a bookie came back on its disk",
    "clone refused": "of two processes with one identity, one was not let in",
    "crashed bookie replaced by a clone": "a copy of a bookie that had crashed took its place, elsewhere",
    "stopped bookie replaced by a clone": "a copy of a bookie that stood still took its place, since it said nothing",
    "closed by its writer": "OPEN became CLOSED",
    "closed by recovery": "IN_RECOVERY became CLOSED",
    "closed empty": "a ledger was closed without an entry",
    "change refused for good": "metadata would not take a creator's change of its ensemble, as it was full",
    "close refused for good": "metadata would not take a creator's close, as it was full",
    "recovery refused for good": "metadata would not take a recovery's mark or close, as it was full",
    "takeover refused for good": "metadata would not take what a takeover put, as it was full",
    "conflict of metadata": "a compare-and-set of a client was refused",
    "copy damaged": "a stored entry turned bad",
    "damaged disk refused": "a bookie did not start on a disk that was harmed",
    "disk harmed": "bytes that a bookie had stored became others",
    "course given back": "a writer's frames that had gone past its core became the core's again",
    "damaged snapshot passed over": "a metadata member started from the snapshot before a damaged one",
    "disk lost": "a bookie lost its disk",
    "disk doubted": "an owner said at a start that something may be lost",
    "empty ledger left its log": "a takeover took a ledger without an entry off its log's list, to be deleted",
    "ensemble change confirmed": "entries of a changed ensemble were acknowledged",
    "ensemble change with adds in flight": "a change was published while entries were outstanding",
    "ensemble changed": "a creator published another ensemble",
    "ensemble changed in recovery": "a recovery closed with other seats than it began with",
    "entry repaired": "a bad copy was replaced by a valid one",
    "explicit LAC": "a bookie took an explicit LAC",
    "fence of an unknown ledger": "a fence came before any entry",
    "fence survived a restart": "a restarted bookie still held a fence that it had acknowledged",
    "fenced in an ensemble change": "a creator was fenced while its change was in flight",
    "generation begun": "an operator's word began a generation on an older copy of the metadata",
    "flush failed": "an entry log could not be written, and its flush waited to be done again",
    "foreign disk refused": "a bookie with an empty disk under its old name was refused by the cluster",
    "fragment replaced": "a change replaced the last fragment, equal start",
    "history of metadata clients checked": "what clients of several metadata members were told fits one order",
    "handle failed": "an application was told that adds failed",
    "in limbo": "a bookie put a ledger into limbo",
    "journal failed": "a bookie's journal failed",
    "journal torn": "power went in the middle of a group commit",
    "lock handed over": "who waited for a lock held it, in the entry that took it from another",
    "late alike": "most bookies of an ensemble were late, and nobody was blamed for it",
    "late bookie replaced": "a creator changed its ensemble because one bookie was late against the others",
    "last fragment empty": "a ledger closed with nothing in its last fragment",
    "ledger deleted": "a ledger's key was removed",
    "ledger dropped": "a bookie dropped the data of a ledger",
    "log deleted": "a log's list was removed, and its ledgers behind it",
    "long poll parked": "a bookie kept a reader waiting for its LAC",
    "metadata cut back": "a metadata log with less than was used did not open",
    "metadata leader changed": "another metadata member was elected, or the same again",
    "metadata said who leads": "a metadata member that did not lead named the one that did",
    "metadata member put to a snapshot": "what a metadata member lacked was gone from the log, and came as a snapshot",
    "metadata member with less than it said": "a leader met a member that had lost what it acknowledged",
    "metadata put off": "a metadata member took no more requests in, and said BUSY",
    "crowd answered": "every request of a crowd was answered in the end, also those that were put off",
    "metadata started from a snapshot": "a metadata member read a snapshot, and the log behind it",
    "metadata stood still": "sessions were given their time again, since the metadata's disk had stood still",
    "negative to a recovery": "a recovery read was told that an entry is not there",
    "node paused": "a process stood still",
    "not enough bookies": "a creator failed for want of bookies",
    "own ledger looked at": "a client looked how far it may read a ledger that it writes itself",
    "newest file missed": "a bookie found by its journal's note that the newest file of it was gone",
    "older disk found out": "a bookie learned from its cookie that its directories are an older copy",
    "older metadata met": "a bookie met metadata that is older than it met before",
    "placement raised": "a bookie was listed as read-only, and raised its placement",
    "placement was another": "a transaction was refused since a bookie that it names had raised its placement",
    "process killed": "a process ended without a word",
    "read answered unknown": "a bookie could not tell about an entry that it was asked for",
    "read asked another copy": "a read did not wait for the first bookie",
    "read on an open ledger": "a reader was given entries of an open ledger",
    "read unconfirmed": "a reader asked for entries above the LAC",
    "recovered above the acknowledged": "recovery kept entries that nobody was acknowledged",
    "recovery at the same time": "two clients recovered one ledger",
    "recovery began again": "a recovery met another version of the metadata and started over",
    "recovery found it closed": "a recovery of a closed ledger ended at once",
    "recovery inconclusive": "a recovery gave up",
    "recovery went back": "a recovery wrote again to a bookie that had failed a write-back, where it sits",
    "recovery wrote back": "a recovery copied entries",
    "request not sent": "a creator's link was down or full",
    "held back for a slow seat": "a creator kept as much as it may for seats that were behind",
    "silent seat gone on without": "a seat that answered nothing at that bound counted as failed",
    "slow seat waited for by nobody": "a writer was acknowledged while Qw-Qa of its ensemble stood still for up to 3 s",
    "seats repaired": "a fragment that nobody writes to changed seats",
    "served after an unclean start": "a bookie that may have lost something answered again",
    "served without metadata": "a bookie that had just started went on without metadata, which it could not reach",
    "session expired": "a bookie left the list of bookies",
    "sent to bookies of its loop": "a client stored a writer's frame in C with bookies of its loop, without a message",
    "sent past the core": "a client sealed and sent a writer's frame in C",
    "stranger hung up on": "a link ended because of what somebody said on it that no node says",
    "strange key met": "a key that is no ledger's was put beside those of ledgers",
    "striped add": "a ledger with E above Qw was written",
    "taken in C behind an unclean start": "a bookie that had to enter limbo took adds by its path in C",
    "taken back": "a creator went on with a bookie that had failed, where it sits",
    "unclean start": "a bookie started that may have lost what was durable",
    "unknown outcome": "a client could not learn whether its compare-and-set was done",
    "waited for bookies": "a creation found too few of the cluster's bookies writable, and waited",
    "waited for room": "a bookie's device was full, and what it had to write waited",
    "went on without a quorum": "a ledger was appended to and read while the metadata had no quorum",
    "went on without some": "a writer was acknowledged with Qw-Qa of its ensemble down",
    "writer fenced": "a creator's handle ended because it was fenced",
    "writer fenced by reader of its own": "a creator learned from a bookie that it was fenced",
    "wrong incarnation": "a bookie answered WRONG_INCARNATION",
}
# What no plan does by chance, and why; directed scenarios reach it. A campaign is not blind without these.
DIRECTED: dict[str, str] = {
    "close refused for good": "a close takes no more room than the open ledger had, up to entry 127",
    "flush failed": "few flushes begin in the moment; tests/storage/test_random_orders.py goes through them",
    "ledger dropped": "a round of collection is longer than a run",
    "placement was another": "a bookie goes read-only between a choice and its transaction, which takes milliseconds",
    "wrong incarnation": "nobody dials a bookie whose registration names another incarnation than it asks for",
}


class Sometimes:
    """Which of them were reached, how often."""

    def __init__(self, reached: Counter[str] | None = None) -> None:
        self.reached: Counter[str] = Counter() if reached is None else reached

    def note(self, name: str) -> None:
        assert name in SOMETIMES, name
        self.reached[name] += 1

    def missed(self) -> list[str]:
        """What a campaign must have met, and has not."""
        return [name for name in SOMETIMES if not self.reached[name] and name not in DIRECTED]
