"""Requests about a member's quorum, and for changes of it (RAFT.md, 7; P10.3). Pure.

Decides which process may receive the log under which name, and which request becomes which event of the Raft. The Raft
decides whether a change may begin (`membership`). These requests are not logged as commands and need no session: each
names the state that is wanted, so a repeated one changes nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import msgspec

from embedbk.codec.metadata_messages import (
    GENERATION_BITS,
    Acknowledged,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    Refusal,
    Result,
)
from embedbk.codec.quorum_messages import (
    IN_THE_WAY_MAX,
    AskMet,
    BaseTold,
    ChangeBase,
    ChangeLearners,
    ChangeVoters,
    ForgetIds,
    Formation,
    Governance,
    JoinAsLearner,
    MemberName,
    MemberTold,
    MetTold,
    QuorumStatus,
    QuorumTold,
    RaiseLevel,
    TransferLeadership,
)
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES, check_member_name
from embedbk.metadata.calibration import Measured
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.growing import growth_of
from embedbk.metadata.levels import LACKING, LEVEL_FIRST, LEVEL_OF_LINEAGES, lacking_members, left_out, named
from embedbk.metadata.log_records import check_member, encode_configuration
from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import (
    Addresses,
    BaseRequested,
    ChangeEnded,
    ChangeRequested,
    Event,
    LearnersRequested,
    TransferRequested,
)
from embedbk.metadata.vocabulary import ForgetRequested, RaiseRequested, Reply

__all__ = ["IS_FORMING", "IS_MEMBER", "REFUSED", "RETIRED", "TAKEN", "Governing", "told", "weighed"]

REFUSED = "REFUSED"  # Refusal.code: not now; the text says why, and the client may ask again.
RETIRED = "RETIRED"  # Never: that member was taken out.
TAKEN = "TAKEN"  # Not under this name, or not by this process: another process of the name is active.
IS_FORMING = "IS_FORMING"  # Not now: this member has promised another formation, for a while.
IS_MEMBER = "IS_MEMBER"  # This member belongs to a cluster already.
WAITING_MAX = 64  # Requests whose change is under way.
# Bytes of the configuration up to which a newcomer takes the place of a learner of its name, which is named there for
# good: the rest is for changes that an operator asks for.
TAKEN_OUT_BYTES_MAX = 32 << 10
_RAISE_BYTES = 16  # That a level takes in the log, at most.


class Governing:
    """The requests about its quorum that one member gets."""

    def __init__(
        self,
        cluster_token: bytes,
        endpoints: Sequence[str],
        catalog: Callable[[], Catalog] = Catalog,
        levels: Callable[[], Mapping[MemberId, int]] = dict,
        lacking: Callable[[int], list[str]] = lambda _: [],
        measured: Callable[[], Measured] = Measured,
        unix_ms: Callable[[], int] = lambda: 0,
        stands: Callable[[], str] = str,
    ) -> None:
        """endpoints: this member's addresses. catalog: returns its present one. levels: those that the builds of linked
        members know. lacking: the clients that do not know a level. measured: this process's measurements so far.
        unix_ms: the time of day, for people only. stands: why nothing more of its log becomes durable."""
        self._stands = stands
        self._unix_ms = unix_ms
        self._levels, self._lacking, self._measured = levels, lacking, measured
        self._token = cluster_token
        self._endpoints = tuple(endpoints)
        self._catalog = catalog
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[int, MetadataRequest]] = {}  # By token: link and request.
        self._begun_in = 0  # The term in which the level of a new cluster was proposed here.

    def listens_at(self, endpoints: Sequence[str]) -> None:
        self._endpoints = tuple(endpoints)

    def ask(
        self, now_ns: int, link: int, request: MetadataRequest, raft: Raft, not_leader: NotLeader
    ) -> tuple[Event | RaiseRequested | ForgetRequested | None, Reply | None]:
        """Turn a request into an event for the core, or an answer, or both. Without an answer, pass the event's
        `ChangeEnded` to this object."""
        operation = request.operation
        assert isinstance(operation, Governance)
        if isinstance(operation, QuorumStatus):
            own = weighed(told(raft, self._token, self._endpoints), self._catalog())
            grown = growth_of(self._catalog())
            own = msgspec.structs.replace(
                own,
                measured=self._measured().told(),
                bookies=grown.bookies,
                fewer_copies=grown.fewer,
                stands=self._stands(),
            )
            return None, _reply(link, request, self._levelled(own, raft))
        if isinstance(operation, AskMet):
            return None, _reply(link, request, self._met(raft))
        if isinstance(operation, Formation):
            text = f"{raft.member.name} is a member of the cluster {self._token.hex()} already"
            return None, _reply(link, request, Refusal(IS_MEMBER, text))
        if raft.role is not Role.LEADER:
            return None, _reply(link, request, not_leader)
        if isinstance(operation, RaiseLevel):
            answer = self._why_not_raised(operation.level, raft)
            if answer is None:
                return RaiseRequested(now_ns, operation.level, link, request), None
            return None, _reply(link, request, answer)
        if isinstance(operation, ForgetIds):
            answer = self._why_not_forgotten(operation.ranges)
            if answer is None:
                return ForgetRequested(now_ns, link, request, operation.ranges), None
            return None, _reply(link, request, answer)
        if len(self._waiting) >= WAITING_MAX:
            text = f"{WAITING_MAX} changes of the members are asked for already: try again later"
            return None, _reply(link, request, Refusal(REFUSED, text))
        made = self._event(now_ns, operation, raft)
        if isinstance(made, TransferRequested):
            return made, _reply(link, request, Acknowledged(0))
        if isinstance(made, LearnersRequested | ChangeRequested | BaseRequested):
            self._waiting[made.token] = (link, request)
            return made, None
        return None, _reply(link, request, made)

    def _met(self, raft: Raft) -> MetTold:
        catalog = self._catalog()
        role, name = raft.role.name.lower(), raft.member.name
        return MetTold(role, name, self._token, catalog.descent.lineage, catalog.revision, catalog.next_id)

    def hear(self, ended: ChangeEnded) -> Reply | None:
        """The answer to a change that is committed, or refused; None: no request waits for it."""
        waiting = self._waiting.pop(ended.token, None)
        if waiting is None:
            return None
        return _reply(*waiting, Refusal(REFUSED, ended.refusal) if ended.refusal else Acknowledged(0))

    def lose(self, not_leader: NotLeader) -> list[Reply]:
        """This member leads no more: only another leader knows whether the requested change is done."""
        waiting, self._waiting = self._waiting, {}
        return [_reply(*each, not_leader) for each in waiting.values()]

    def end_link(self, link: int) -> None:
        self._waiting = {token: each for token, each in self._waiting.items() if each[0] != link}

    def _event(
        self, now_ns: int, operation: Governance, raft: Raft
    ) -> LearnersRequested | ChangeRequested | BaseRequested | TransferRequested | Result:
        configuration = raft.configuration
        match operation:
            case JoinAsLearner():
                return self._join(now_ns, operation, raft)
            case ChangeVoters(_, given) | ChangeLearners(_, given) if wrong := _why_none(given):
                return Refusal("BAD_REQUEST", wrong)
            case ChangeVoters(expected, voters, policy, allows_even, accepts_risk):
                try:
                    wanted = Policy(policy) if policy else configuration.policy
                except ValueError:
                    allowed = ", ".join(each.value for each in Policy)
                    return Refusal("BAD_REQUEST", f"policy {policy!r}: allowed are {allowed}")
                for member in map(_member, voters):
                    known = self._known_by(member, raft)
                    if known < self._catalog().level and not configuration.is_voter(member):
                        return left_out(f"member {member.name}", known, self._catalog().level)
                return ChangeRequested(
                    now_ns,
                    next(self._numbers),
                    expected,
                    tuple(map(_member, voters)),
                    wanted,
                    allows_even,
                    self._own_address(raft),
                    accepts_risk,
                )
            case ChangeLearners(expected, learners):
                wanted_learners = tuple(map(_member, learners))
                token = next(self._numbers)
                return LearnersRequested(now_ns, token, expected, wanted_learners, self._own_address(raft))
            case ChangeBase(expected, base_ms):
                return BaseRequested(now_ns, next(self._numbers), expected, base_ms, self._unix_ms())
            case TransferLeadership(to):
                member = _member(to)
                if member not in configuration.voters:
                    names = ", ".join(each.name for each in configuration.voters)
                    return Refusal("BAD_REQUEST", f"{to.name} is no voter; these are: {names}")
                if member == raft.member:
                    return Acknowledged(0)
                if not raft.knows(member)[0]:
                    return Refusal(REFUSED, f"{to.name} is not heard: start it, or name another voter")
                if not raft.keeps_up(member):  # Nothing is proposed while leadership waits for a member.
                    text = f"{to.name} lags: it has entry {raft.knows(member)[2]}, and {raft.commit_index} is committed"
                    return Refusal(REFUSED, f"{text}: let it catch up, or name another voter")
                return TransferRequested(now_ns, member)
        raise AssertionError(operation)

    def _known_by(self, member: MemberId, raft: Raft) -> int:
        own = self._catalog().limits.level_known
        return own if member == raft.member else self._levels().get(member, LEVEL_FIRST)

    def _in_the_way(self, level: int, raft: Raft) -> list[str]:
        heard = [each for each in raft.configuration.members if raft.knows(each)[0]]
        members = lacking_members(raft.configuration, raft.member, self._levels(), heard, level)
        return [*members, *self._lacking(level)]

    def begin_level(self, now_ns: int, raft: Raft) -> RaiseRequested | None:
        """A cluster in which no ledger was made yet needs no way back to an earlier build: it begins with the newest
        level, as soon as all nodes know it; else an operator raises it."""
        catalog = self._catalog()
        known = catalog.limits.level_known
        if catalog.next_id > 1 or catalog.level >= known or raft.role is not Role.LEADER:
            return None
        if self._begun_in == raft.term or self._why_not_raised(known, raft) is not None:
            return None
        if raft.why_full(
            _RAISE_BYTES, 0
        ):  # As while leadership is handed over: later in this term, or in the next.
            return None
        self._begun_in = raft.term
        return RaiseRequested(now_ns, known)

    def _why_not_raised(self, level: int, raft: Raft) -> Result | None:
        """The answer, if it is known at once; None: it may be proposed, as far as members know the level."""
        catalog = self._catalog()
        known = catalog.limits.level_known
        if not LEVEL_FIRST <= level <= known:
            return Refusal(
                "BAD_REQUEST",
                f"level {level}: {raft.member.name}, which leads, knows levels {LEVEL_FIRST} to {known}",
            )
        if level <= catalog.level:
            return Acknowledged(catalog.revision)
        if raft.configuration.is_joint:
            return Refusal(REFUSED, "a change of the voters is under way: raise the level when it has ended")
        if lacking := self._in_the_way(level, raft):
            text = f"the level cannot be raised to {level}: in the way are {named(lacking)}"
            is_certain = any("knows level" in each for each in lacking)
            return Refusal(LACKING if is_certain else REFUSED, text)
        return None

    def _why_not_forgotten(self, ranges: Sequence[tuple[int, int]]) -> Result | None:
        """The answer, if it is known at once; None: it may be proposed."""
        catalog = self._catalog()
        if catalog.level < LEVEL_OF_LINEAGES:
            text = (
                f"ids are forgotten at level {LEVEL_OF_LINEAGES}, and the cluster's level is {catalog.level}"
            )
            return Refusal(LACKING, f"{text}: embedbk quorum raise, when all nodes know it")
        if wrong := [each for each in ranges if each[0] >= each[1]]:
            first, end = wrong[0]
            return Refusal("BAD_REQUEST", f"ids {first} to {end - 1} are none: the first is the lower one")
        kept = (*catalog.descent.spared, *catalog.descent.stale)
        is_known = any(
            max(first, known) < min(end, known_end) for known, known_end in kept for first, end in ranges
        )
        return None if is_known else Acknowledged(catalog.revision)

    def _levelled(self, status: QuorumTold, raft: Raft) -> QuorumTold:
        """The status with the cluster's level, and the nodes that keep a leader from raising it (P10.8)."""
        catalog = self._catalog()
        known, in_the_way = catalog.limits.level_known, list[str]()
        if catalog.level < known and raft.role is Role.LEADER:
            in_the_way = self._in_the_way(known, raft)
        return msgspec.structs.replace(
            status, level=catalog.level, level_known=known, in_the_way=tuple(in_the_way[:IN_THE_WAY_MAX])
        )

    def _join(self, now_ns: int, asked: JoinAsLearner, raft: Raft) -> LearnersRequested | Result:
        configuration, member = raft.configuration, _member(asked.member)
        refusal = self._why_not_join(asked, member, raft)
        if refusal is not None:
            return refusal
        if member in configuration.members and configuration.endpoints_of(member) == asked.endpoints:
            return Acknowledged(0)
        learners = tuple(each for each in configuration.learners if each.name != member.name)
        if not configuration.is_voter(member):
            learners = (*learners, member)
        addresses = (*self._own_address(raft), (member, asked.endpoints))
        expected = raft.log.configuration_index
        return LearnersRequested(now_ns, next(self._numbers), expected, learners, addresses)

    def _why_not_join(self, asked: JoinAsLearner, member: MemberId, raft: Raft) -> Refusal | None:
        configuration, name = raft.configuration, member.name
        if asked.cluster_token != self._token:
            text = f"it belongs to cluster {asked.cluster_token.hex()}, this is {self._token.hex()}"
            return Refusal("WRONG_TOKEN", f"{name} cannot join: {text}")
        try:
            check_member_name(name)
        except UsageError as refused:
            return Refusal("BAD_REQUEST", str(refused))
        if len(member.incarnation) != INCARNATION_BYTES or not asked.endpoints:
            text = f"an incarnation of {len(member.incarnation)} bytes and {len(asked.endpoints)} endpoints"
            return Refusal("BAD_REQUEST", f"{name}: {text}; needed are {INCARNATION_BYTES} and at least one")
        if asked.level < self._catalog().level:
            return left_out(f"member {name}", asked.level, self._catalog().level)
        if member in configuration.retired:
            return Refusal(
                RETIRED,
                f"{name} ({member.incarnation.hex()}) was taken out and never comes back: what it promised may be "
                "forgotten; start it with an empty directory",
            )
        is_heard, nonce, _ = raft.knows(member) if member in configuration.members else (False, b"", 0)
        if is_heard and nonce != asked.nonce:
            return Refusal(
                TAKEN,
                f"another process runs as {name}, with the same directory or a copy of it, and is heard at "
                f"{', '.join(configuration.endpoints_of(member)) or 'an unknown address'}: stop one of the two; a "
                "new member needs an empty directory",
            )
        for other in configuration.members:
            if other.name == name and other != member and raft.knows(other)[0]:
                return Refusal(
                    TAKEN,
                    f"the name {name} is taken: {other.incarnation.hex()} is heard at "
                    f"{', '.join(configuration.endpoints_of(other))}; choose another with --name",
                )
        takes_out = any(each.name == name and each != member for each in configuration.learners)
        size = len(encode_configuration(configuration)) if takes_out else 0
        if size > TAKEN_OUT_BYTES_MAX:
            return Refusal(
                REFUSED,
                f"{name} would take out a learner of its name, as others did before: the {len(configuration.retired)} "
                f"members that were taken out make a configuration of {size} bytes, allowed are {TAKEN_OUT_BYTES_MAX}; "
                "give it its directory back, or another name with --name, and do not start it with an empty one again",
            )
        return None

    def _own_address(self, raft: Raft) -> Addresses:
        """Note the leader's own address if it is unknown: a member that began alone has none in the configuration."""
        known = raft.configuration.endpoints_of(raft.member)
        return ((raft.member, self._endpoints),) if self._endpoints and known != self._endpoints else ()


def told(raft: Raft, cluster_token: bytes, endpoints: tuple[str, ...]) -> QuorumTold:
    """What this member says of itself. endpoints: its addresses, if its configuration has none."""
    configuration = raft.configuration
    leader = raft.leader
    role = raft.role.name.lower()
    return QuorumTold(
        cluster_token,
        _name(raft.member),
        role if configuration.is_voter(raft.member) else "learner",
        raft.term,
        leader.name if leader is not None else "",
        raft.log.last_index,
        raft.commit_index,
        raft.applied_index,
        raft.log.configuration_index,
        configuration.is_joint,
        configuration.policy.value,
        configuration.election_base_ms,
        tuple(_told_of(raft, configuration, each, endpoints) for each in configuration.members),
        raft.has_doubt,
        raft.log.memory_bytes,
        base=_base_told(raft),
    )


def _base_told(raft: Raft) -> BaseTold:
    change = raft.configuration.base_change
    suits_ms, suits_why = raft.suited_base() or (0, "")
    stays = raft.why_base_stays()
    if change is None:
        return BaseTold(suits_ms=suits_ms, suits_why=suits_why, stays=stays)
    return BaseTold(change.is_fixed, change.unix_ms, change.by, change.why, suits_ms, suits_why, stays)


def weighed(status: QuorumTold, catalog: Catalog) -> QuorumTold:
    """The status with what this member's catalog holds (P10.7), and which metadata it is (P10.5)."""
    held, most = catalog.key_space.held_bytes, catalog.limits.catalog_bytes_max
    return msgspec.structs.replace(
        status,
        weights=catalog.record_table.weights.told(),
        held_bytes=held,
        held_max=most,
        lineage=catalog.descent.lineage,
        generation=catalog.revision >> GENERATION_BITS,
        spared=len(catalog.descent.spared),
    )


def _told_of(
    raft: Raft, configuration: Configuration, member: MemberId, endpoints: tuple[str, ...]
) -> MemberTold:
    role = "learner" if not configuration.is_voter(member) else "leaving"
    role = "voter" if member in configuration.voters else role
    is_heard, start, index = raft.knows(member)
    known = configuration.endpoints_of(member)
    if member == raft.member:
        is_heard, index, known = True, raft.log.durable_index, known or endpoints
    return MemberTold(_name(member), role, known, is_heard, index, start)


def _reply(link: int, request: MetadataRequest, result: Result) -> Reply:
    return Reply(link, MetadataReply(request.session, request.sequence, result))


def _member(name: MemberName) -> MemberId:
    return MemberId(name.name, name.incarnation)


def _why_none(names: Sequence[MemberName]) -> str:
    """Why one of these can be no member, empty: each can. Every start would refuse a log that has it."""
    for each in names:
        try:
            check_member(_member(each))
        except StorageError as refused:
            return f"{refused.args[0]}; nothing was changed"
    return ""


def _name(member: MemberId) -> MemberName:
    return MemberName(member.name, member.incarnation)
