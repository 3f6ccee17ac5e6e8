"""What `embedbk quorum status` prints of the measurements of members, and of forecasts (RAFT.md, 8).

Decides the words and the arguments of `--what-if`. The formulas stand in `metadata/calibration.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from embedbk.codec.quorum_messages import BaseTold, ChangeBase, QuorumTold
from embedbk.errors import UsageError
from embedbk.host.loop import LATEST_S
from embedbk.metadata.basing import why_no_base
from embedbk.metadata.calibration import Advice, Measured, advise
from embedbk.metadata.raft_log import RETAINED_BYTES_MAX, entry_bytes
from embedbk.metadata.raft_vocabulary import Entry

__all__ = [
    "WHAT_IF_HELP",
    "WhatIf",
    "base_of",
    "calibration_as_json",
    "calibration_as_text",
    "wanted_base",
    "what_if_of",
]

WHAT_IF_HELP = (
    "what followed from ledgers=5M (or bytes=1G of state) and rate=2k operations/s, of record=250 bytes"
)
RECORD_BYTES = 250  # Bytes of a usual ledger, and of an operation on one.
MEMORY_BYTES = 180  # Memory of a record beside its own bytes.
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_NUMBER = re.compile(r"(\d{1,18}(?:\.\d+)?)([kMGT]?)(?:/s)?")
_TIME = re.compile(r"(\d{1,18}(?:\.\d+)?)(ms|s)")
_NAMES = ("ledgers", "bytes", "rate", "record")


class WhatIf(NamedTuple):
    """The assumed numbers; None: as measured."""

    state_bytes: int | None = None
    log_bytes_per_s: int | None = None
    ledgers: int = 0
    record_bytes: int = RECORD_BYTES


def what_if_of(arguments: Sequence[str]) -> WhatIf | None:
    """None: nothing was asked.

    Raises:
        UsageError: an unknown name or a bad number; or both ledgers and bytes.
    """
    if not arguments:
        return None
    said: dict[str, int] = {}
    for argument in arguments:
        name, _, number = argument.partition("=")
        found = _NUMBER.fullmatch(number)
        if name not in _NAMES or found is None or name in said:
            raise UsageError(
                f"--what-if {argument}: allowed are {', '.join(f'{each}=NUMBER' for each in _NAMES)}, each once",
                hint="as in --what-if ledgers=5M rate=2k/s; k, M, G and T stand for thousands, millions and so on",
            )
        said[name] = int(float(found[1]) * _UNITS[found[2]])
    if "ledgers" in said and "bytes" in said:
        raise UsageError("--what-if: ledgers= and bytes= both say how large the state is", hint="give one")
    record = said.get("record", RECORD_BYTES)
    size = said["ledgers"] * record if "ledgers" in said else said.get("bytes")
    rate = said["rate"] * (entry_bytes(Entry(1, 1, b"")) + record) if "rate" in said else None
    return WhatIf(size, rate, said.get("ledgers", 0), record)


def base_of(argument: str) -> int:
    """An election base in ms; 0: measurements decide.

    Raises:
        UsageError: this is no election base, or one that no quorum may have.
    """
    if argument == "auto":
        return 0
    found = _TIME.fullmatch(argument)
    base_ms = int(float(found[1]) * (1000 if found[2] == "s" else 1)) if found is not None else 0
    if found is None or (refusal := why_no_base(base_ms)):
        said = refusal if found is not None else "it is no time"
        raise UsageError(f"--election-base {argument}: {said}", hint="say 800ms or 2s, or auto")
    return base_ms


def wanted_base(leader: QuorumTold, base_ms: int) -> ChangeBase | None:
    """The change to ask of this leader; None: it is done already.

    Raises:
        UsageError: its build changes none.
    """
    base = leader.base
    if base is None:
        raise UsageError(
            f"{leader.member.name}, which leads, is of a build that changes no election base",
            hint="start the newer build on every node first",
        )
    if base.is_fixed == bool(base_ms) and base_ms in (0, leader.election_base_ms):
        return None
    return ChangeBase(leader.configuration, base_ms)


def _advice(told: Mapping[Any, QuorumTold], what_if: WhatIf) -> tuple[dict[str, Measured], Advice]:
    measured = {each.member.name: Measured.of(each.measured) for each in told.values() if each.measured}
    held = max((each.held_bytes for each in told.values()), default=0)  # Also before the first snapshot.
    held = max([held, *(each.snapshot_bytes for each in measured.values())])
    advice = advise(
        list(measured.values()),
        RETAINED_BYTES_MAX,
        state_bytes=held if what_if.state_bytes is None else what_if.state_bytes,
        log_bytes_per_s=what_if.log_bytes_per_s,
    )
    return measured, advice


def calibration_as_json(
    told: Mapping[Any, QuorumTold], best: QuorumTold, what_if: WhatIf | None
) -> dict[str, Any]:
    """best: the answer of the leader, or of the member that knows the newest configuration."""
    base = best.base or BaseTold()
    measured, advice = _advice(told, what_if or WhatIf())
    return {
        "measured": {name: each._asdict() for name, each in measured.items()},
        "what_if": what_if._asdict() if what_if is not None else None,
        "election_base_ms": {
            "in_force": best.election_base_ms,
            "is_fixed": base.is_fixed,
            "changed_at": _when(base),
            "changed_by": base.by or None,
            "changed_for": base.why or None,
            "would_be": base.suits_ms or None,
            "would_be_for": base.suits_why or None,
            "stays_for": base.stays or None,
            "suits": advice.base_ms,
            "terms": advice.base_terms,
            "binds": advice.base_binds,
        },
        "catch_up": {"state_bytes": advice.state_bytes, "seconds": round(advice.catch_up_s, 3)},
        "log": {
            "bytes_per_s": advice.log_bytes_per_s,
            "worth_keeping_bytes": advice.log_bytes,
            "kept_bytes": advice.log_kept_bytes,
            "kept_s": round(advice.log_s, 3),
            "binds": advice.log_binds,
        },
    }


def calibration_as_text(
    told: Mapping[Any, QuorumTold], best: QuorumTold, what_if: WhatIf | None
) -> list[str]:
    measured, advice = _advice(told, what_if or WhatIf())
    if not measured:
        return []  # All are of a build that measures nothing.
    slowest = max(measured, key=lambda name: measured[name].catch_up_ns)
    terms, own = advice.base_terms, measured[slowest]
    base = f"election base {best.election_base_ms} ms{_history(best.base)}; "
    base += f"{advice.base_ms} ms suits what was measured: stalls {terms['stall']}, "
    base += f"round trip and sync {terms['round_trip_and_sync']}, floor {terms['floor']} ms ({_of(measured)})"
    time = f"a state of {_bytes(advice.state_bytes)} takes {slowest} {advice.catch_up_s:.1f} s: fetching "
    time += f"{_cost(own.fetch_ns, own.fetch_deviation_ns, own.fetches)}, loading "
    time += _cost(own.load_ns, own.load_deviation_ns, own.loads)
    log = f"of the log {_bytes(advice.log_bytes)} are worth keeping behind a snapshot, at "
    log += f"{_bytes(advice.log_bytes_per_s)} a second; {_kept(advice)}"
    supposed = [_supposed(what_if, advice)] if what_if is not None else []
    return [base, *supposed, time, log]


def _history(base: BaseTold | None) -> str:
    """Since when it has this value, set by whom and why; and the other value, where something prevents it."""
    if base is None:
        return ""
    said = f", by {base.by} since {_when(base)} ({base.why})" if base.by else ", never changed"
    if base.suits_ms and base.stays:
        said += (
            f", and by what voters measured {base.suits_ms} ms ({base.suits_why}), but it stays: {base.stays}"
        )
    return said


def _when(base: BaseTold) -> str | None:
    if not base.by:
        return None
    return datetime.fromtimestamp(min(base.unix_ms // 1000, LATEST_S), UTC).isoformat()


def _of(measured: Mapping[str, Measured]) -> str:
    turns, trips = (
        sum(each.stalls for each in measured.values()),
        sum(each.round_trips for each in measured.values()),
    )
    return f"{turns} turns, {trips} round trips, {sum(each.syncs for each in measured.values())} syncs"


def _supposed(what_if: WhatIf, advice: Advice) -> str:
    said = []
    if what_if.ledgers:
        memory = what_if.ledgers * (what_if.record_bytes + MEMORY_BYTES)
        said.append(f"{what_if.ledgers} ledgers take {_bytes(memory)} of memory in each member")
    if what_if.log_bytes_per_s is not None:
        said.append(f"the log grows by {_bytes(advice.log_bytes_per_s)} a second")
    return f"what if: {'; '.join(said) or f'the state has {_bytes(advice.state_bytes)}'}"


def _kept(advice: Advice) -> str:
    kept = f"{_bytes(advice.log_kept_bytes)} are kept ({advice.log_binds})"
    if advice.log_binds == "cap":
        kept += f": a member that is away for more than {advice.log_s:.1f} s is put to the snapshot again and again"
    return kept


def _cost(cost_ns: int, deviation_ns: int, samples: int) -> str:
    seen = f"{samples} samples" if samples else "assumed"
    return f"{cost_ns / 1e6:.1f} ± {deviation_ns / 1e6:.1f} ms/MiB ({seen})"


def _bytes(size: int) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"
