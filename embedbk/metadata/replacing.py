"""A voter that lost its disk, and its next incarnation in its place: when that may begin (RAFT.md, 7). Pure.

With incarnations a lost disk is a crash for good, and the joint change counts only members that answer. One accident
remains: a script wipes one machine after another, or a batch of disks fails, and replacements follow until no member is
left that has the log. So one replacement an hour, unless the operator accepts the risk explicitly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.metadata.quorum import MemberId

__all__ = ["REST_NS", "replaced", "why_not_replaced"]

REST_NS = 3_600_000_000_000  # Between two replacements.


def replaced(before: Sequence[MemberId], after: Sequence[MemberId]) -> list[tuple[MemberId, MemberId]]:
    """Voters of which another incarnation takes the place: (the old one, the new one)."""
    old = {member.name: member for member in before}
    return [(old[each.name], each) for each in after if each.name in old and each != old[each.name]]


def why_not_replaced(
    pairs: Sequence[tuple[MemberId, MemberId]],
    is_heard: Callable[[MemberId], bool],
    last_ns: int | None,
    now_ns: int,
    *,
    accepts_risk: bool,
) -> str:
    """Empty: they may be. last_ns: when this member last saw a voter replaced; None: not since it started."""
    for old, _ in pairs:
        if is_heard(old):
            return f"{old.name} ({old.incarnation.hex()}) is heard: nobody has to take its place"
    if accepts_risk or not pairs:
        return ""
    if len(pairs) > 1:
        names = " and ".join(old.name for old, _ in pairs)
        return f"{names} at once: two disks lost together look like one cause; find it, and replace one of them first"
    if last_ns is not None and now_ns < last_ns + REST_NS:
        minutes = (now_ns - last_ns) // 60_000_000_000
        return (
            f"a voter was replaced {minutes} min ago, and {pairs[0][0].name} would be the second within an hour: two "
            "disks lost so soon look like one cause; find it first, or accept the risk by name"
        )
    return ""
