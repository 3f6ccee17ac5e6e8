"""Every bound and setting, named once. A bound is reached by a test; a setting is checked where it enters."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from embedbk.errors import UsageError

__all__ = [
    "ANYWHERE",
    "CUSTOM_BYTES_MAX",
    "ENTRY_BYTES_MAX",
    "FRAME_BYTES_MAX",
    "FRAME_BLOCK_BYTES",
    "JOURNAL_FILE_BYTES_MIN",
    "LAC_WAIT_MS_MAX",
    "LEDGERS_LEFT_MAX",
    "LOG_PAGE_LEDGERS",
    "MESSAGE_BYTES_MAX",
    "METADATA_VALUE_BYTES_MAX",
    "NEVER_ROLL",
    "PACKER_BYTES_MAX",
    "PACKER_POOL_BYTES_MAX",
    "QUORUM_WAIT_S",
    "READ_BYTES_PER_S_MAX",
    "READ_BYTES_PER_S_MIN",
    "READ_ROOM_BYTES",
    "READ_WAIT_MS_MAX",
    "GRACE_S_MAX",
    "GRACE_S_MIN",
    "REPAIR_GRACE_S",
    "BACKLOG_BYTES_MAX",
    "BEHIND_BYTES_MAX",
    "SLOW_BOOKIE_BYTES_MAX",
    "STORED_BYTES_MAX",
    "USUAL_ROLL",
    "ENSEMBLE_SIZE_MAX",
    "Placement",
    "Quorum",
    "Settings",
    "check_flag",
    "check_seconds",
    "quorum_for",
    "settings_of",
]

ENTRY_BYTES_MAX = 1 << 20  # Payload of one entry; larger is refused before anything is sent.
STORED_BYTES_MAX = ENTRY_BYTES_MAX + 12  # The same as stored: an entry of a log gets its time as well.
# Usual size of a block in which the packer gathers entries. Three frames of it fill a group of the journal (1 MiB), and
# each holds five entries of 64 KiB; smaller ones make more messages of the same bytes.
FRAME_BLOCK_BYTES = 341 << 10
FRAME_BYTES_MAX = ENTRY_BYTES_MAX + (64 << 10)  # Body of one frame: at least one entry of the largest size.
# What must fit on a link before entries are looked up for it: the largest frame, and room for the answers to adds.
READ_ROOM_BYTES = FRAME_BYTES_MAX + (1 << 20)
READ_BYTES_PER_S_MIN = 64 << 10  # A bound of a class of reads is at least this, or none at all (P6.7).
READ_BYTES_PER_S_MAX = 1 << 40
READ_WAIT_MS_MAX = 20_000  # A bookie tells a reader to wait no longer than this, and is asked again.
JOURNAL_FILE_BYTES_MIN = 2 << 20  # The largest frame must fit into one file.
PACKER_BYTES_MAX = (
    64 << 20
)  # Appended to one handle and not yet released; beyond, appends wait (back-pressure).
# One handle's frames that are acknowledged and kept for bookies that have not answered, with a price for each frame.
# Less than a packer's bound by what may be on its way: the bookies that are behind are judged before appends have no
# room.
BEHIND_BYTES_MAX = 32 << 20
BACKLOG_BYTES_MAX = (
    256 << 20
)  # The same for all handles of this process together: half of what their packers have.
SLOW_BOOKIE_BYTES_MAX = 64 << 20  # What one client keeps for one bookie whose link takes no more.
PACKER_POOL_BYTES_MAX = 512 << 20  # Blocks of all packers of this process together.
MESSAGE_BYTES_MAX = 4 << 20  # One message on a link, everything included.
METADATA_VALUE_BYTES_MAX = (
    256 << 10
)  # One value of the metadata: a ledger's metadata, a log's list of ledgers.
# Names and values of a ledger's custom metadata together: what is left of a value is for the ledger's own fragments.
CUSTOM_BYTES_MAX = 64 << 10
LEDGERS_LEFT_MAX = (
    1_000  # Ledgers that left a log's list and are not deleted yet; more stay in the list meanwhile.
)
LOG_PAGE_LEDGERS = 256  # Ledgers of one page of a log's list, which are 8 KiB or so.
LAC_WAIT_MS_MAX = 30_000  # A long poll for the LAC is answered at the latest after this.
QUORUM_WAIT_S = (
    5.0  # A writer without its ack quorum waits so long for bookies, unless a setting says otherwise.
)
GRACE_S_MIN, GRACE_S_MAX = 0.1, 10 * 365 * 86_400  # How long a bookie may be away before it is lost.
REPAIR_GRACE_S = (
    300.0  # A bookie that is away for so long is taken to be lost, unless a setting says otherwise.
)
ENSEMBLE_SIZE_MAX = 64  # Seats of an ensemble; write sets are kept as bits of one word.


@dataclass(frozen=True, slots=True)
class Quorum:
    """E, Qw and Qa of a ledger: `E >= Qw >= Qa >= 1` (P1)."""

    ensemble_size: int
    write_quorum: int
    ack_quorum: int

    def __post_init__(self) -> None:
        given = f"ensemble_size={self.ensemble_size}, write_quorum={self.write_quorum}, ack_quorum={self.ack_quorum}"
        for value in (self.ensemble_size, self.write_quorum, self.ack_quorum):
            if not isinstance(value, int) or isinstance(value, bool):
                raise UsageError(f"{given}: each must be a whole number")
        if not self.ensemble_size >= self.write_quorum >= self.ack_quorum >= 1:
            raise UsageError(f"{given}: allowed is ensemble_size >= write_quorum >= ack_quorum >= 1")
        if self.ensemble_size > ENSEMBLE_SIZE_MAX:
            raise UsageError(f"{given}: ensemble_size may be at most {ENSEMBLE_SIZE_MAX}")


def quorum_for(
    bookie_count: int,
    ensemble_size: int | None = None,
    write_quorum: int | None = None,
    ack_quorum: int | None = None,
) -> Quorum:
    """The quorum that was asked for, with defaults for what is left out: 3/3/2, or 1/1/1 with fewer than three
    bookies."""
    size = ensemble_size if ensemble_size is not None else write_quorum
    if size is None:
        size = 3 if bookie_count >= 3 else 1
    write = write_quorum if write_quorum is not None else size
    if ack_quorum is not None or not isinstance(write, int):  # Which Quorum refuses.
        return Quorum(size, write, write if ack_quorum is None else ack_quorum)
    return Quorum(size, write, write - 1 if write >= 3 else write)


@dataclass(frozen=True, slots=True)
class Placement:
    """Which bookies get the seats of an ensemble (RP37 to RP45). By default any of the writable ones, by chance."""

    domain: str = (
        "none"  # "rack": whole locations are kept apart; "zone": what stands before the first "/" of them.
    )
    domains_min: int = 2  # Every write set spans so many different ones, where possible.
    is_strict: bool = False  # Make no ensemble rather than one that spans fewer.
    weighs_space: bool = False  # Chance in proportion to free space, within bounds.
    local: tuple[str, ...] = ()  # Bookie ids of which one always takes a seat.

    def __post_init__(self) -> None:
        if self.domain not in ("none", "rack", "zone"):
            raise UsageError(f"domain={self.domain!r}: allowed are 'none', 'rack' and 'zone'")
        flags = (self.is_strict, self.weighs_space)
        if not all(isinstance(flag, bool) for flag in flags):
            raise UsageError(f"is_strict={flags[0]!r}, weighs_space={flags[1]!r}: True and False are allowed")
        if not isinstance(self.local, tuple) or not all(isinstance(name, str) for name in self.local):
            raise UsageError(f"local={self.local!r}: a tuple of bookie ids is allowed", hint='local=("b1",)')
        if not isinstance(self.domains_min, int) or not 1 <= self.domains_min <= ENSEMBLE_SIZE_MAX:
            raise UsageError(f"domains_min={self.domains_min!r}: allowed is 1 to {ENSEMBLE_SIZE_MAX}")


ANYWHERE = Placement()


@dataclass(frozen=True, slots=True)
class Settings:
    """What may be set where embedbk is opened; every field has a default that suits a machine of its own."""

    open_timeout_s: float = 10.0  # For the cluster to answer, and the bookies of an embedded one to register.
    operation_timeout_s: float = (
        30.0  # For anything but appends and reads, which wait as long as their caller.
    )
    # How long a writer goes on without its ack quorum: until a bookie comes, comes back or answers again. Then its
    # handle fails with NotEnoughBookies (P4.5). At least what a bookie takes to restart, where that must end no handle.
    quorum_wait_s: float = QUORUM_WAIT_S
    session_ttl_ms: int = 6_000  # A client or bookie that is silent for so long is given up by the metadata.
    journal_file_bytes: int = (
        64 << 20
    )  # The largest journal file; files begin with 2 MiB and double. At least 2 MiB.
    scrub_bytes_per_s: int = (
        8 << 20
    )  # What each bookie reads of its entry logs to find rot; 0: nothing (I55).
    allow_non_loopback: bool = False  # Bind and dial other machines: links are not encrypted.
    delete_grace_s: float = 86_400.0  # A deleted ledger can be brought back for so long.
    collect_s: float = 900.0  # Between two rounds in which a bookie asks what it may delete.
    # What one read has asked for, received, or handed out and not gone past yet; beyond, it asks for nothing more.
    read_ahead_bytes: int = 8 << 20
    # What reads of many entries are to the bookies: "catch-up", or "batch", which is served behind the others and has a
    # bound of its own where an operator sets one (P6.7). The newest entries and single ones are bounded by nothing.
    reads_as: str = "catch-up"
    # Appended to one handle and not released yet, by bookies that answer late as well; beyond, appends wait (RP33).
    # A log that leaves a ledger has two handles until the one before is done.
    append_bytes_max: int = PACKER_BYTES_MAX
    # What all handles together keep for one bookie whose link takes no more; beyond, it has failed (RP34).
    slow_bookie_bytes_max: int = SLOW_BOOKIE_BYTES_MAX
    # Whether this process repairs what was lost, where it hosts bookies, and is a candidate for auditor (P11).
    repairs: bool = True
    # A bookie that is away for so long is taken to be lost: its seats in open ledgers go to others, and what it had is
    # copied (P4.1, P11.1). More than its restart takes; a bookie that comes back before loses nothing.
    repair_grace_s: float = REPAIR_GRACE_S
    # What this process reads for copies at the most; a sixteenth of it while others wait. 0: as fast as it goes.
    repair_bytes_per_s: int = 64 << 20
    repair_ledgers_per_s: int = 0  # That this process begins to repair; 0: as many as it can.
    # Where a bookie has a fifth less room than the mean, and 1 GiB, copies of closed ledgers move to those with more,
    # so many bytes a second; likewise where copies could be in more racks (P11.6). 0: none moves.
    balance_bytes_per_s: int = 8 << 20
    audit_s: float = (
        3_600.0  # Between two looks of the auditor at all ledgers, when nothing else asks for one.
    )
    placement: Placement = (
        ANYWHERE  # For every ensemble that this client makes, where a ledger asks for no other.
    )

    def __post_init__(self) -> None:
        for name, low, high in (
            ("open_timeout_s", 0.001, 3600),
            ("operation_timeout_s", 0.001, 3600),
            ("quorum_wait_s", 0.001, 86_400),
            ("session_ttl_ms", 200, 600_000),
            ("scrub_bytes_per_s", 0, 1 << 40),
            ("delete_grace_s", 0, 10 * 365 * 86_400),
            ("collect_s", 0.01, 10 * 365 * 86_400),
            ("repair_grace_s", GRACE_S_MIN, GRACE_S_MAX),
            ("repair_bytes_per_s", 0, 1 << 40),
            ("repair_ledgers_per_s", 0, 1 << 40),
            ("balance_bytes_per_s", 0, 1 << 40),
            ("audit_s", 1, 10 * 365 * 86_400),
            ("read_ahead_bytes", 1, 1 << 40),
            ("append_bytes_max", ENTRY_BYTES_MAX, 1 << 40),
            ("slow_bookie_bytes_max", MESSAGE_BYTES_MAX, 1 << 40),
            ("journal_file_bytes", JOURNAL_FILE_BYTES_MIN, 1 << 40),
        ):
            value = getattr(self, name)
            kind, kinds = (
                (int | float, "")
                if name.endswith("_s") and "_per_" not in name
                else (int, " in whole numbers")
            )
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                raise UsageError(f"{name}={value!r}: allowed is {low} to {high}{kinds}")
        if self.reads_as not in ("catch-up", "batch"):
            raise UsageError(f"reads_as={self.reads_as!r}: allowed are 'catch-up' and 'batch'")
        for name in ("repairs", "allow_non_loopback"):
            if not isinstance(flag := getattr(self, name), bool):
                raise UsageError(f"{name}={flag!r}: True and False are allowed")
        if not isinstance(self.placement, Placement):
            raise UsageError(f"placement={self.placement!r}: allowed is embedbk.Placement(...)")
        if self.journal_file_bytes % 4096:
            raise UsageError(f"journal_file_bytes={self.journal_file_bytes}: a multiple of 4096 is allowed")


@dataclass(frozen=True, slots=True)
class Roll:
    """When the writer of a log goes on in a next ledger (P8.2): at the first bound that its present ledger reaches.
    None: no such bound. Each ledger draws its own bounds, up to a tenth to either side.

    bytes: payload bytes. entries: their number. age_s: seconds since it was begun; an empty ledger stays.
    """

    bytes: int | None = 1 << 30
    entries: int | None = None
    age_s: float | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("bytes", 1, 1 << 50),
            ("entries", 1, 1 << 50),
            ("age_s", 0.001, 10 * 365 * 86_400),
        ):
            value = getattr(self, name)
            is_number = isinstance(value, int | float if name == "age_s" else int) and not isinstance(
                value, bool
            )
            if value is not None and not (is_number and low <= value <= high):
                raise UsageError(
                    f"Roll({name}={value!r}): allowed is {low} to {high}, or None for no such bound"
                )


NEVER_ROLL = Roll(bytes=None)
USUAL_ROLL = Roll()


def settings_of(given: object) -> Settings:
    """The settings that were given, or the usual ones. Raises UsageError unless given Settings or None."""
    if given is None:
        return Settings()
    if not isinstance(given, Settings):
        raise UsageError(
            f"settings={given!r}: allowed is embedbk.Settings(...), or None",
            hint="embedbk.Settings(collect_s=60)",
        )
    return given


def check_flag(given: object, name: str) -> None:
    """Raises UsageError unless it is True or False: "no" counts as true in Python, and lets happen what it was to
    prevent."""
    if not isinstance(given, bool):
        raise UsageError(f"{name}={given!r:.80}: True and False are allowed; nothing was changed")


def check_seconds(given: object, name: str) -> None:
    """Raises UsageError unless it is None, or seconds from 0 on."""
    if given is None:
        return
    if isinstance(given, int) and given > sys.float_info.max:
        raise UsageError(f"{name}: this whole number is no time; allowed are seconds, or None for no limit")
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:  # NaN is not, either.
        raise UsageError(f"{name}={given!r}: allowed are seconds from 0 on, or None for no limit")
