"""The metadata members of a world: each with a directory of its own, and what they agree on (METADATA.md, P10.1).

Faults and checks address a member by its name.

    directory (journal, notes, snapshots) ──▶ start ──▶ process ──▶ applies ──▶ agreed history ──▶ `on_metadata`
"""

from __future__ import annotations

import dataclasses
import errno
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from embedbk.codec.metadata_messages import Lineage
from embedbk.errors import StorageError
from embedbk.host.metadata_node import MetadataNode
from embedbk.ids import INCARNATION_BYTES, START_ID_BYTES
from embedbk.metadata.basing import BASE_RULES, BaseRules
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.history import History
from embedbk.metadata.levels import LEVEL
from embedbk.metadata.limits import Limits
from embedbk.metadata.member import Member
from embedbk.metadata.quorum import Configuration, MemberId, Policy
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import SnapshotSaved
from embedbk.metadata.vocabulary import RequestReceived
from embedbk.ports.links import Identity
from embedbk.storage.metadata_store import SNAPSHOT_DUE_BYTES_MAX, MemberIdentity, MetadataStore
from embedbk.storage.snapshot_files import SnapshotFiles
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY
from embedbk.testing.agreed_history import Agreed
from embedbk.testing.disks import MetadataCopy
from embedbk.testing.member_bytes import open_behind_a_flip, open_behind_a_tear
from embedbk.testing.member_copies import MemberCopies
from embedbk.testing.member_directories import CLUSTER_TOKEN, SNAPSHOT_CALLS, MemberDirectory
from embedbk.testing.member_names import METADATA, member_names
from embedbk.testing.process_names import bookie_of
from embedbk.testing.quorum_watch import QuorumWatch

if TYPE_CHECKING:
    from embedbk.testing.operator import Operator
    from embedbk.testing.world import World

__all__ = ["HASTY_BASE", "Members"]

FIRST_ENTRY = 1  # The first entry of the log of several: it has the voters.
DIGEST_ENTRIES = 20  # Between two comparisons of the members' states.
RETAINED_BYTES_MAX = (0, 16 << 10, 1 << 30)  # So a member that is behind gets a snapshot now and then.
HASTY_BASE = BaseRules(500_000_000, stalls=10, syncs=5, round_trips=5, interval_ns=2_000_000_000)
SNAPSHOT_DUE_BYTES = (2 << 10, 16 << 10)  # Bytes of commands: a run passes a few snapshots.


class Members:
    """The members of one world. Those that run are in the world's nodes."""

    def __init__(
        self,
        world: World,
        count: int,
        policy: Policy,
        election_base_ms: int,
        first: int = 0,
        base_rules: BaseRules = BASE_RULES,
    ) -> None:
        """The first ones, or all, vote from the first entry on, which is their configuration; the others are not there
        yet (`make`). One alone begins its cluster."""
        self._world = world
        self.names = member_names(count)
        self.first_base_ms = election_base_ms
        self._base_rules = base_rules
        self.endpoints = [f"sim://{name}" for name in self.names]
        self.agreed = Agreed(world)
        self.watch = QuorumWatch(world) if count > 1 else None
        # Members that lost their directory are other ones, which are not known.
        self.wiped: dict[str, None] = {}
        # Members whose log was damaged: they may be in doubt for as long as the log lasts.
        self.harmed: dict[str, None] = {}
        self.copies = MemberCopies(world)
        self._places = frozenset(self.names)
        self._directories = {
            name: MemberDirectory((number + 2).to_bytes(16, "big"), self._chance_of_snapshots(name))
            for number, name in enumerate(self.names[: first or count])
        }
        voters = tuple(MemberId(name, each.incarnation) for name, each in self._directories.items())
        # The newest that is committed, and the newest that a leader has begun.
        self.configuration = self.begun = Configuration(
            voters,
            policy=policy,
            outgoing_policy=policy,
            election_base_ms=election_base_ms,
            addresses=tuple((voter, (f"sim://{voter.name}",)) for voter in voters),
        )
        self._configured = self._begun = FIRST_ENTRY  # Where those stand in the log.
        # P5: how long a turn of this member takes that applied something.
        self.slow_apply: dict[str, int] = {}
        self.operator: Operator | None = None  # The operator who changes the voters, once there is one.
        self.watchers: dict[Callable[[str, Member], None], None] = {}  # Callbacks of faults for every step.
        # Told who leads, once, when both sets of voters count.
        self.on_joint: list[Callable[[str], None]] = []
        if count > 1:
            for name in self._directories:
                self._form(name)

    def __contains__(self, name: str) -> bool:
        return bookie_of(name) in self._places  # A copy of one runs at a place of its own.

    def _chance_of_snapshots(self, name: str) -> random.Random:
        return random.Random(f"snapshots {self._tag(name)}")

    def exists(self, name: str) -> bool:
        """Whether there is a directory of this name."""
        return name in self._directories

    def _tag(self, name: str) -> str:
        return f"{self._world.seed}" if name == METADATA else f"{self._world.seed} {name}"

    @property
    def election_base_ms(self) -> int:
        """The longest that a member may go by."""
        return max(self.configuration.election_base_ms, self.begun.election_base_ms)

    @property
    def running(self) -> list[str]:
        return [name for name in self.names if name in self._world.nodes]

    @property
    def catalog(self) -> Catalog | None:
        """The running member that has applied the most; None: none runs."""
        catalogs = [self._world.nodes[name].core.catalog for name in self.running]
        return max(catalogs, key=lambda catalog: catalog.revision, default=None)

    @property
    def voters(self) -> list[str]:
        """The voters of the committed configuration that still have their identity."""
        return self._alive(self.configuration.voters)

    def _alive(self, members: Sequence[MemberId]) -> list[str]:
        """The members that have the directory in which they became members."""
        there = {name: each.incarnation for name, each in self._directories.items()}
        return [each.name for each in members if there.get(each.name) == each.incarnation]

    @property
    def leader(self) -> str | None:
        """The leader of the newest term that has one."""
        leading = [name for name in self.running if self._world.nodes[name].core.log.term]
        return max(leading, key=lambda name: self._world.nodes[name].core.log.term, default=None)

    @property
    def term(self) -> int:
        return max((self._world.nodes[name].core.log.raft.term for name in self.running), default=0)

    def applied(self, name: str) -> int:
        """Up to which entry; 0: it does not run."""
        return self._world.nodes[name].core.applied_index if name in self._world.nodes else 0

    def incarnation(self, name: str) -> bytes:
        return self._directories[name].incarnation

    def describe(self) -> str:
        said = []
        for name in self.names:
            node = self._world.nodes.get(name)
            if node is None:
                said.append(f"{name} is {'down' if self.exists(name) else 'not there'}")
                continue
            raft = node.core.log.raft
            said.append(
                f"{name} {raft.role.name} in term {raft.term}, committed {raft.commit_index}, "
                f"applied {node.core.applied_index} of {raft.log.last_index}"
            )
        return "; ".join(said)

    # Starting and stopping.

    def _form(self, name: str) -> None:
        """Its log begins with the configuration of all."""
        nonce = random.Random(f"formed {self._tag(name)}").randbytes(START_ID_BYTES)
        self._directories[name].form(name, self.configuration, nonce)

    def start_all(self) -> None:
        """Every member that does not run."""
        for name in self.names:
            if name not in self._world.nodes:
                self.start(name)

    def make(self, name: str) -> None:
        """An empty directory that belongs to this cluster: a member that starts in it is not known to the others
        yet."""
        self._directories[name] = MemberDirectory(
            self._new_incarnation("made", name), self._chance_of_snapshots(name)
        )

    def _new_incarnation(self, how: str, name: str) -> bytes:
        """Not one of the world's numbers: a wiped member that is given its own again would be who it was."""
        chance = random.Random(f"{how} {self._tag(name)} {self._world.now_ns}")
        return chance.randbytes(INCARNATION_BYTES)

    def _start_nonce(self, name: str, directory: MemberDirectory) -> bytes:
        """Each start has its own, also where a member that was removed gave its place to an empty directory."""
        start = f"start {self._tag(name)} {directory.incarnation.hex()} {directory.starts}"
        return random.Random(start).randbytes(START_ID_BYTES)

    def remove(self, name: str) -> None:
        """The member is stopped, and its directory goes."""
        if name in self._world.nodes:
            self._world.crash(name)
        self.copies.end(name)
        self._world.note(f"{name} is removed")
        del self._directories[name]

    def start(self, name: str, *, may_have_lost: bool = False, gives_up: tuple[Lineage, ...] = ()) -> None:
        """A process on its directory, if there is one."""
        if name not in self._directories:
            return
        world, directory = self._world, self._directories[name]
        journal, chance = directory.journal, directory.chance
        directory.disk.crash(chance.getrandbits(63) | 1)  # As the journal was, when it went down.
        directory.mend()  # A start that cannot read its snapshot is refused.
        directory.harm_snapshot()
        is_alone = len(self.names) == 1
        identity = MemberIdentity(
            CLUSTER_TOKEN, directory.incarnation, *(() if is_alone else (bookie_of(name), False))
        )
        level, limits = world.level_of(name), self._limits_of(name)
        try:
            store = MetadataStore(
                journal,
                journal.first_token(),
                limits=limits,
                new_identity=identity,
                notes=directory.notes,
                may_have_lost=may_have_lost,
                gives_up=gives_up,
                snapshots=SnapshotFiles(SNAPSHOT_DIRECTORY, io=directory.disk),
                snapshot_due_bytes=chance.choice(SNAPSHOT_DUE_BYTES),
                retained_bytes_max=RETAINED_BYTES_MAX[directory.starts % len(RETAINED_BYTES_MAX)],
                start_nonce=self._start_nonce(name, directory),
            )
        except StorageError as refused:
            if level == LEVEL:
                raise
            world.sometimes["older build refused"] += 1  # P10.8: it does not know what it finds.
            world.note(f"{name} refuses to start: {refused}")
            return
        self._note_snapshots(directory, store)
        journal.commit()  # No message may carry an identity that a crash could take back.
        node = MetadataNode(
            store,
            world.network.transport(
                Identity(
                    "metadata",
                    store.identity.name,
                    directory.incarnation,
                    CLUSTER_TOKEN,
                    store.start.nonce,
                    level,
                ),
                place=name,
            ),
            [f"sim://{name}"],
            now_ns=world.now_of(name),
            chance=random.Random(f"metadata {self._tag(name)} {directory.starts}"),
            requests_waiting_max=world.requests_waiting_max,
            digest_entries=DIGEST_ENTRIES,
            base_rules=self._base_rules,
            unix_ms=lambda: world.wall_ms,
        )
        directory.starts += 1
        if self.watch is not None:
            self.watch.begin(name, node.core)
        world.enter(name, "metadata", node, directory.incarnation)

    def _limits_of(self, name: str) -> Limits:
        """The limits of the catalog, as the build of this member has them."""
        return dataclasses.replace(self._world.metadata_limits, level_known=self._world.level_of(name))

    def _note_snapshots(self, directory: MemberDirectory, store: MetadataStore) -> None:
        found, met = store.snapshots_found, self._world.sometimes
        met["metadata started from a snapshot"] += found.catalog is not None
        met["damaged snapshot passed over"] += bool(found.refused)
        assert store.snapshots is not None
        directory.snapshots = store.snapshots.kept

    def end(self, name: str, node: MetadataNode, chance: random.Random) -> None:
        """The process is gone: of what it had not synced, some is on its disk all the same."""
        self._directories[name].crash(chance)

    # Disks.

    def is_pending(self, name: str) -> bool:
        """Something of it is not synced."""
        return bool(self._directories[name].journal.pending)

    def sync(self, name: str) -> None:
        self._directories[name].journal.commit()

    def copy(self, name: str) -> MetadataCopy:
        """A member's whole directory as it is now."""
        return self._directories[name].copy(self._limits_of(name))

    def take(self, name: str) -> MetadataCopy:
        """The member is killed; what is left."""
        self._world.crash(name)
        return self.copy(name)

    def put(
        self,
        name: str,
        copy: MetadataCopy,
        *,
        may_have_lost: bool = False,
        gives_up: tuple[Lineage, ...] = (),
    ) -> None:
        """The member starts on this directory, whatever stood in its place."""
        self._world.note(f"{name} is put back from a copy")
        self._directories[name].put(copy)
        if self.watch is None:
            self.agreed.begin_again(copy.catalog().revision)
        else:
            self.watch.forgetful.add(name)
        self.start(name, may_have_lost=may_have_lost, gives_up=gives_up)

    def lay_copy(self, name: str, copy: str) -> None:
        """Copy this member's disk under the other name."""
        self._directories[copy] = self._directories[name].beside(self._chance_of_snapshots(copy))
        self._world.note(f"{name} is copied")

    def drop_copy(self, copy: str) -> None:
        del self._directories[copy]

    def tear(self, name: str, chance: random.Random) -> None:
        """D2: the member is killed in the middle of a group commit, and its log is opened as it is then."""
        directory = self._directories[name]
        records, pending = tuple(directory.journal.records), tuple(directory.journal.pending)
        self._world.crash(name)
        self._world.note(f"a group of {name} is torn")
        files, limits = directory.disk.files(), self._limits_of(name)
        directory.take_over(open_behind_a_tear(records, pending, files, directory.notes, limits, chance))

    def flip(self, name: str, chance: random.Random) -> StorageError | None:
        """D4: the member is killed, and a bit of its log has flipped when it starts. Returns the error of that start if
        it refused."""
        directory, met = self._directories[name], self._world.sometimes
        if name in self._world.nodes:
            self._world.crash(name)
        limits = self._limits_of(name)
        opened = open_behind_a_flip(
            directory.journal.records, directory.disk.files(), directory.notes, limits, chance
        )
        if opened is None:
            return None
        self._world.note(f"a bit of the log of {name} flips")
        self.harmed[name] = None
        if opened.refusal is None:
            met["damaged metadata log gone on with in doubt"] += opened.is_in_doubt
            directory.take_over(opened)
        else:
            met["damaged metadata log refused"] += 1
            self._world.note(f"{name} refuses to start: {opened.refusal}")
        return opened.refusal

    def bring_back(self, name: str, copy: MetadataCopy, gives_up: tuple[Lineage, ...] = ()) -> None:
        """Another member begins in an empty directory with what a copy has, as `embedbk quorum recover` makes it."""
        self._world.note(f"{name} is another member, with what a copy has")
        before = self._directories[name]
        self.make(name)
        directory, kept = self._directories[name], copy.kept()
        # A process draws its random numbers from this, and no two draw the same.
        directory.starts = before.starts
        nonce = random.Random(f"made {name} {self._world.now_ns}").randbytes(START_ID_BYTES)
        directory.fill(kept, nonce)
        self.agreed.begin_again(kept.catalog.revision)
        self.start(name, may_have_lost=True, gives_up=gives_up)

    def hasten_snapshot(self, name: str) -> None:
        """Its next turn begins one, if anything was applied since the last."""
        self._world.nodes[name].store._entry_bytes = SNAPSHOT_DUE_BYTES_MAX

    def fail_snapshots(self, name: str, chance: random.Random) -> None:
        """D8, D9: from now on its disk has no room for a snapshot, or fails a call of each."""
        directory = self._directories[name]
        directory.fails, disk = True, directory.disk
        if chance.random() < 0.5:
            disk.break_device(SNAPSHOT_DIRECTORY, errno.EDQUOT)
        else:
            call = chance.choice(SNAPSHOT_CALLS)
            disk.fail(call, error=errno.EIO, stays=True)

    def mend_snapshots(self, name: str) -> None:
        """A disk that failed is well again. A member that could not name another's snapshot, which its log counts on,
        has stopped serving: whoever looks after it starts it again. One that stopped for another reason stays so."""
        if not self.exists(name) or not self._directories[name].fails:
            return
        self._directories[name].mend()
        node = self._world.nodes.get(name)
        if node is not None and node.failure is not None and name not in self._world.paused:
            self._world.crash(name)
            self.start(name)

    # Losses.

    def may_lose(self, name: str) -> bool:
        """Whether the others elect and commit without it for good."""
        forgot = bool(self.watch is not None and self.watch.forgetful)
        if not self.exists(name) or forgot:
            return False
        return all(
            len([each for each in self._alive(voters) if each != name and each not in self.harmed])
            >= max(sizes.commit, sizes.elect)
            for configuration in (self.configuration, self.begun)
            for voters, sizes in configuration.halves()
        )

    def may_forget(self, name: str) -> bool:
        """Whether the policy bears that what it promised is gone, and it is who it was."""
        (_, sizes), *_ = self.configuration.halves()
        forgot = {name} | (self.watch.forgetful if self.watch is not None else set())
        is_whole = not self.wiped and not self.harmed
        return is_whole and self._begun == FIRST_ENTRY and len(forgot) <= sizes.forgetful

    def wipe(self, name: str) -> None:
        """Its directory is gone; what starts there next has another incarnation."""
        if name in self._world.nodes:
            self._world.crash(name)
        self.copies.end(name)  # The part that it shared with that one is gone.
        self._world.note(f"{name} loses its directory")
        self.wiped[name] = None
        before = self._directories[name]
        incarnation = self._new_incarnation("wiped", name)
        self._directories[name] = MemberDirectory(incarnation, before.chance, starts=before.starts)

    # The agreed history.

    def on_step(self, name: str, core: Member, event: Any, effects: Sequence[Any]) -> None:
        if self.watch is not None:
            if self.slow_apply.get(name) and core.applied_index > self.watch.applied_by(name):
                self._be_slow(name, self.slow_apply[name])
            if self.copies.any():
                self.copies.on_step(name, core, effects)
            self.watch.look(name, core, event, effects)
            if bookie_of(name) == name:
                self._look_at_configuration(name, core, event)
                for watcher in list(self.watchers):
                    watcher(name, core)
            node = self._world.nodes.get(name)
            if type(event) is RequestReceived and node is not None and node.gathered_taken:
                self._world.sometimes["requests sent together"] += 1
        self.agreed.look(core.catalog)
        if self._world.history_changes:
            self._forget(core.catalog.history, self._world.history_changes)
        self._world.tell("on_step", name, core, event, effects)

    @staticmethod
    def _forget(history: History, kept: int) -> None:
        """Drop all but the newest changes. The bound holds only here: one step may make more, and `agreed` looks at
        all of them behind it."""
        usual, history.changes_max = history.changes_max, kept
        history.trim()
        history.changes_max = usual

    def _be_slow(self, name: str, for_ns: int) -> None:
        """Make its next turn late; its disk continues with its work."""
        world = self._world
        world.sometimes["metadata member applied slowly"] += 1
        world.slow_ns[name] = for_ns
        world.after(for_ns, lambda: world.slow_ns.pop(name, None))

    def _look_at_configuration(self, name: str, core: Member, event: Any) -> None:
        raft = core.log.raft  # type: ignore[attr-defined]
        index = raft.log.configuration_index
        is_saved = type(event) is SnapshotSaved and event.index == raft.log.snapshot_index
        if is_saved and raft.log.configuration_at(event.index).is_joint:
            self._world.sometimes["snapshot of members between two sets of voters"] += 1
        if index > self._configured and index <= raft.commit_index:
            self._note_base(self.configuration.election_base_ms, raft.configuration.election_base_ms)
            self._configured, self.configuration = index, raft.configuration
        if raft.role is not Role.LEADER or index == self._begun or index <= self._configured - 1:
            return
        self._begun, self.begun = index, raft.configuration
        if self.begun.is_joint:
            self._world.sometimes["metadata voters changed"] += 1
            strikes, self.on_joint = self.on_joint, []
            for strike in strikes:
                strike(name)

    def _note_base(self, before_ms: int, now_ms: int) -> None:
        met = self._world.sometimes
        met["election base raised"] += now_ms > before_ms
        met["election base lowered"] += now_ms < before_ms
