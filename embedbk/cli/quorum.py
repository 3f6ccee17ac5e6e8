"""`embedbk quorum`: how the metadata members of a cluster stand, and what an operator may have them do (RAFT.md, 7).

Decides which members are asked and what is printed. Every change is asked of the leader, with the configuration that
was seen, and waited for: when the command has ended, the change is done. A refusal is printed with what is allowed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Container, Sequence
from typing import Any

from embedbk.cli.backup import add_commands
from embedbk.cli.calibrating import (
    WHAT_IF_HELP,
    WhatIf,
    base_of,
    calibration_as_json,
    calibration_as_text,
    wanted_base,
    what_if_of,
)
from embedbk.cli.operators import CommandResult, Commands, endpoints_at
from embedbk.client.knocking import is_of_a_door
from embedbk.codec.lineages import lineage_text
from embedbk.codec.metadata_messages import Operation
from embedbk.codec.quorum_messages import (
    ChangeLearners,
    ChangeVoters,
    MemberName,
    MemberTold,
    QuorumTold,
    RaiseLevel,
    TransferLeadership,
)
from embedbk.errors import UsageError
from embedbk.metadata.fullness import room_for_records
from embedbk.metadata.growing import Growth, offers
from embedbk.metadata.levels import LEVEL_FIRST, named
from embedbk.metadata.quorum import VOTERS_MAX, Policy, sizes_of
from embedbk.quorum import Quorum, Seen, all_vote, also_lost, takes_place, why_no_leader

__all__ = ["run_quorum"]


def run_quorum(arguments: Sequence[str]) -> int:
    commands = Commands("quorum", "The metadata members of a cluster: how they stand, who votes, who leads.")

    def command(
        name: str, run: Callable[[Quorum, argparse.Namespace], Seen], text: str
    ) -> argparse.ArgumentParser:
        return commands.add(name, lambda quorum, options: _said_of(run(quorum(), options)), text)

    status = commands.add(
        "status",
        lambda quorum, options: _status(quorum, what_if_of(options.what_if)),
        "who is there, who leads, what may fail, what was measured",
    )
    status.add_argument("--what-if", nargs="+", metavar="NAME=NUMBER", default=[], help=WHAT_IF_HELP)
    join = command("join", _join, "let all learners vote, by one change of both sets together")
    change = command("reconfigure", _reconfigure, "let exactly these members vote, and these learn")
    change.add_argument("--voters", metavar="NAMES", help="m1,m2,m3 (default: those that vote now)")
    change.add_argument(
        "--learners",
        metavar="NAMES",
        help="m4,m5, or '' for none: whoever learns and is not named is taken out for good (default: nobody is)",
    )
    change.add_argument(
        "--election-base",
        metavar="TIME",
        help="fix it, as 800ms or 2s; 'auto' lets what the members measure decide, as it does until it is fixed",
    )
    for made in (join, change):
        made.add_argument("--policy", choices=[each.value for each in Policy], help="how large quorums are")
        made.add_argument(
            "--allow-even",
            action="store_true",
            help="an even number is meant, though it bears no more than one less",
        )
    init = command("init", _init, "let the blank members at all addresses of --at begin a cluster together")
    init.add_argument("--policy", choices=[each.value for each in Policy], help="how large quorums are")
    init.add_argument("--allow-even", action="store_true", help="an even number is meant")
    transfer = command("transfer", _transfer, "let another member lead")
    transfer.add_argument("--to", required=True, metavar="NAME", help="which")
    replace = command("replace", _replace, "let a member that lost its disk, and learns again, vote again")
    replace.add_argument("name", metavar="NAME", help="which")
    replace.add_argument(
        "--accept-risk",
        metavar="TOKEN",
        help="also within an hour of another replacement, or while another member may have lost something: the "
        "cluster's token, as the status shows it",
    )
    raising = command(
        "raise",
        _raise,
        "raise the cluster's level to what all nodes know; older builds can never come back, and it is never lowered",
    )
    raising.add_argument(
        "--to", type=int, metavar="LEVEL", help="to which (default: the newest that the leader knows)"
    )
    add_commands(commands.add)
    return commands.run(arguments)


def _said_of(seen: Seen, what_if: WhatIf | None = None) -> CommandResult:
    return CommandResult(
        _as_json(seen, what_if), _as_text(seen, what_if), 0 if seen.leader is not None else 1
    )


# --- Commands ---------------------------------------------------------------------------------------------


def _status(quorum: Callable[[], Quorum], what_if: WhatIf | None) -> CommandResult:
    return _said_of(quorum().look(), what_if)


def _init(quorum: Quorum, options: argparse.Namespace) -> Seen:
    count = len(set(endpoints_at(options.at)))
    if not 1 <= count <= VOTERS_MAX:
        raise UsageError(
            f"--at has {count} addresses: a quorum has 1 to {VOTERS_MAX} voters",
            hint="let more members join later: they may be learners",
        )
    _check_even(count, options.allow_even)
    quorum.form()
    return quorum.change(
        lambda leader: all_vote(leader, options.policy or "", allows_even=options.allow_even),
        "the change of the voters",
    )


def _join(quorum: Quorum, options: argparse.Namespace) -> Seen:
    def wanted(leader: QuorumTold) -> Operation | None:
        change = all_vote(leader, options.policy or "", allows_even=options.allow_even)
        if change is not None:
            return _checked(change)
        if len(leader.members) == 1:
            first = ""
            if is_of_a_door(leader.members[0].endpoints):
                first = 'in the process that has the directory: client.listen("tcp://127.0.0.1:0"); then '
            raise UsageError(
                "nobody waits to join",
                hint=f"{first}start a member first: embedbk metadata --join HOST:PORT --dir DIRECTORY --name m2",
            )
        return None

    return quorum.change(wanted, "the change of the voters")


def _reconfigure(quorum: Quorum, options: argparse.Namespace) -> Seen:
    base_ms = base_of(options.election_base) if options.election_base is not None else None

    def wanted(leader: QuorumTold) -> Operation | None:
        now = [each.member for each in leader.members if each.role == "voter"]
        voters = (
            now if options.voters is None else [_find(leader, name) for name in options.voters.split(",")]
        )
        learners = _learners(leader, options.learners, voters)
        policy = options.policy or leader.policy
        if set(voters) != set(now) or policy != leader.policy or leader.is_joint:
            return _checked(
                ChangeVoters(leader.configuration, tuple(voters), options.policy or "", options.allow_even)
            )
        if learners is not None and len(learners) < sum(each.role == "learner" for each in leader.members):
            return ChangeLearners(leader.configuration, tuple(learners))
        return wanted_base(leader, base_ms) if base_ms is not None else None

    return quorum.change(wanted, "the change of the members")


def _learners(
    leader: QuorumTold, wanted: str | None, voters: Sequence[MemberName]
) -> list[MemberName] | None:
    """The members that stay learners, looked up before anything is changed; None: not known."""
    if wanted is None:
        return None
    learning = {each.member.name: each.member for each in leader.members if each.role == "learner"}
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in learning:
            raise UsageError(
                f"there is no learner {name!r}; these are: {', '.join(learning) or 'none'}",
                hint="a new one joins with embedbk metadata --join",
            )
        if learning[name] in voters:
            raise UsageError(f"{name} cannot both vote and learn", hint="name it once")
    return [member for name, member in learning.items() if name in names]


def _checked(change: ChangeVoters) -> ChangeVoters:
    _check_even(len(change.voters), change.allows_even)
    return change


def _check_even(count: int, allows_even: bool) -> None:
    if count % 2 == 0 and not allows_even:
        raise UsageError(
            f"{count} voters bear no more crashes than {count - 1}",
            hint="let one more join, or take one out (reconfigure --voters), or say --allow-even",
        )


def _transfer(quorum: Quorum, options: argparse.Namespace) -> Seen:
    def wanted(leader: QuorumTold) -> Operation | None:
        return None if leader.member.name == options.to else TransferLeadership(_find(leader, options.to))

    return quorum.change(wanted, f"the transfer to {options.to}")


def _replace(quorum: Quorum, options: argparse.Namespace) -> Seen:
    seen, leader = quorum.look_for_leader()
    name, accepted = options.name.strip(), options.accept_risk
    if accepted not in (None, leader.cluster_token.hex()):
        raise UsageError(
            f"--accept-risk {accepted}: this cluster's token is another one",
            hint="embedbk quorum status shows it; nothing was changed",
        )
    if accepted is None and (others := also_lost(seen, name)):
        raise UsageError(
            f"{name} is not replaced while more may be lost: {others}",
            hint="find out why, and let them come back first; or --accept-risk TOKEN",
        )
    if takes_place(leader, name) is None:
        raise UsageError(
            f"nobody waits to take the place of {name}",
            hint=f"start it with an empty directory: embedbk metadata --join HOST:PORT --dir DIRECTORY --name {name}",
        )
    return quorum.change(
        lambda now: takes_place(now, name, accepts_risk=accepted is not None), f"the replacement of {name}"
    )


def _raise(quorum: Quorum, options: argparse.Namespace) -> Seen:
    def wanted(leader: QuorumTold) -> Operation | None:
        if not leader.level:
            raise UsageError(
                f"{leader.member.name}, which leads, is of a build that knows no levels",
                hint="start the newer build on every node, then raise the level",
            )
        level = leader.level_known if options.to is None else options.to
        if not LEVEL_FIRST <= level <= leader.level_known:
            raise UsageError(
                f"--to {level}: {leader.member.name}, which leads, knows levels {LEVEL_FIRST} to {leader.level_known}",
                hint="start a newer build on every node first",
            )
        if level < leader.level and options.to is not None:
            raise UsageError(
                f"--to {level}: the level is {leader.level} already, and is never lowered",
                hint="embedbk quorum status shows the level",
            )
        return None if leader.level >= level else RaiseLevel(level)

    return quorum.change(wanted, "raising the level")


def _find(leader: QuorumTold, name: str) -> MemberName:
    """The member of this name; of two (one was wiped and came back) the one that answers."""
    found = [each for each in leader.members if each.member.name == name.strip()]
    if not found:
        names = ", ".join(dict.fromkeys(each.member.name for each in leader.members))
        raise UsageError(
            f"there is no member {name!r}; these are: {names}",
            hint="a new one joins with embedbk metadata --join",
        )
    return max(found, key=lambda each: (each.is_heard, each.role == "voter")).member


# --- What is shown ----------------------------------------------------------------------------------------


def _tolerance(best: QuorumTold, told: Container[MemberName]) -> str:
    """How many members may fail, in words."""
    if best.is_joint:
        return "a change of the voters is under way: quorums of both sets are needed"
    voters = sum(each.role == "voter" for each in best.members)
    if not voters:
        return "it knows of no voter yet"
    sizes = sizes_of(Policy(best.policy), voters)
    writes, elections = voters - sizes.commit, voters - sizes.elect
    crashes = min(writes, elections)
    text = f"of {voters} voters {sizes.commit} commit and {sizes.elect} elect: "
    text += f"{crashes} may fail" if crashes else "none may fail"
    silent = sum(each.role == "voter" and each.member not in told for each in best.members)
    if silent:
        text += f", and {silent} of them {'does' if silent == 1 else 'do'} not answer now"
    if sizes.forgetful:
        text += f", and {sizes.forgetful} may come back with an older disk"
    return text


def _as_json(seen: Seen, what_if: WhatIf | None = None) -> dict[str, Any]:
    best = seen.best
    return {
        "cluster_token": best.cluster_token.hex(),
        "leader": seen.leader.member.name if seen.leader is not None else None,
        "term": best.term,
        "policy": best.policy,
        "election_base_ms": best.election_base_ms,
        "configuration": best.configuration,
        "is_joint": best.is_joint,
        "tolerance": _tolerance(best, seen.told),
        "lineage": lineage_text(best.lineage, best.generation),
        "spared_ranges": best.spared,
        "level": best.level,
        "level_known": best.level_known,
        "level_lacking": list(best.in_the_way) if seen.leader is not None else None,
        "calibration": calibration_as_json(seen.told, best, what_if),
        "bookies": best.bookies,
        "open_ledgers_with_fewer_copies": best.fewer_copies,
        "members": [_member_as_json(seen, each) for each in best.members],
        "unreachable": seen.missed,
    }


def _member_as_json(seen: Seen, member: MemberTold) -> dict[str, Any]:
    own = seen.told.get(member.member)
    return {
        "name": member.member.name,
        "incarnation": member.member.incarnation.hex(),
        "role": member.role,
        "endpoints": list(member.endpoints),
        "answers": own is not None,
        "is_heard_by_leader": member.is_heard if seen.leader is not None else None,
        "state": own.role if own is not None else None,
        "term": own.term if own is not None else None,
        "last_index": own.last_index if own is not None else member.index,
        "commit_index": own.commit_index if own is not None else None,
        "applied_index": own.applied_index if own is not None else None,
        "has_doubt": own.has_doubt if own is not None else None,
        "stands": own.stands if own is not None else None,
        "level_known": own.level_known if own is not None else None,
        "log_bytes": own.log_bytes if own is not None else None,
        "bytes_by_kind": dict(own.weights) if own is not None else None,
        "held_bytes": own.held_bytes if own is not None else None,
        "held_bytes_max": own.held_max if own is not None else None,
    }


def _as_text(seen: Seen, what_if: WhatIf | None = None) -> str:
    best = seen.best
    leader = (
        f"{seen.leader.member.name} leads"
        if seen.leader is not None
        else f"nobody leads: {why_no_leader(seen)}"
    )
    if not best.cluster_token:
        where = "; ".join(f"{told.member.name} at {', '.join(_where(told))}" for told in seen.told.values())
        return f"no cluster: {why_no_leader(seen)}: {where}\nembedbk quorum init lets blank members begin one together"
    lines = [
        f"cluster {best.cluster_token.hex()}: {leader}, term {best.term}",
        f"{best.policy}: {_tolerance(best, seen.told)}",
    ]
    head = ("member", "role", "state", "log", "committed", "applied", "where")
    members = sorted(best.members, key=lambda each: (each.role, each.member.name))
    rows = [head, *(_row(seen, each) for each in members)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    lines += [
        f"{told.member.name}: nothing more of its log becomes durable, and commits wait for that: {told.stands}"
        for told in seen.told.values()
        if told.stands
    ]
    lines += _room_of(best)
    lines += _level_of(best)
    lines += _lineage_of(best)
    lines += calibration_as_text(seen.told, best, what_if)
    voters = {each.member.name for each in best.members if each.role == "voter"}
    learners = [each.member.name for each in best.members if each.role == "learner"]
    lines += [
        f"{name} lost its disk and learns again: embedbk quorum replace {name} lets it vote again"
        for name in learners
        if name in voters
    ]
    lines += offers([name for name in learners if name not in voters], _growth_of(best))
    return "\n".join(lines)


def _growth_of(best: QuorumTold) -> Growth:
    return Growth(best.bookies, best.fewer_copies)


def _room_of(best: QuorumTold) -> list[str]:
    """How full the catalog is; if nearly full, also the kinds with most bytes, and what makes room (P10.7)."""
    if not best.held_max:
        return []  # A build that does not report it.
    return [room_for_records(best.held_bytes, best.held_max, best.weights)]


def _level_of(best: QuorumTold) -> list[str]:
    """The level in force, the level to which it could be raised, and the nodes that stand in the way (P10.8)."""
    if not best.level:
        return []  # A build that knows none.
    line = f"level {best.level}"
    if best.level >= best.level_known:
        return [line]
    if not best.in_the_way:
        done = f"embedbk quorum raise begins {best.level_known}" if best.role == "leader" else "nobody leads"
        return [f"{line}: {done}; until it is raised the build before can come back"]
    return [f"{line}, {best.level_known} is known: in the way are {named(best.in_the_way)}"]


def _lineage_of(best: QuorumTold) -> list[str]:
    """If metadata was brought back: the lineage, and the ids that it left spared or stale (P10.5)."""
    if not best.generation:
        return []
    left = "; a lost future may have left ledgers: embedbk ledger lost" if best.spared else ""
    return [f"lineage {lineage_text(best.lineage, best.generation)}{left}"]


def _where(told: QuorumTold) -> list[str]:
    return [endpoint for each in told.members if each.member == told.member for endpoint in each.endpoints]


def _row(seen: Seen, member: MemberTold) -> tuple[str, ...]:
    own = seen.told.get(member.member)
    where = ", ".join(member.endpoints) or "unknown"
    if own is None:
        return member.member.name, member.role, "does not answer", str(member.index or "?"), "?", "?", where
    state = own.role + (", in doubt" if own.has_doubt else "") + (", stands still" if own.stands else "")
    figures = (str(own.last_index), str(own.commit_index), str(own.applied_index))
    return member.member.name, member.role, state, *figures, where
