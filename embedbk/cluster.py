"""A cluster of peer processes on this machine: started, watched and stopped by the process that opened it.

Decides which processes run, never what they say to each other. The starter holds one end of a pipe into each peer, so
that nothing outlives it, also not after SIGKILL; a peer that ended is started again on request only.

    with Cluster("./data", bookies=4) as cluster:
        with embedbk.open(cluster.url) as bk: ...

    DIRECTORY/metadata/  m2/ m3/ ...       the metadata members' directories; `metadata` is that of the first, m1
    DIRECTORY/b1/ b2/ ...                  the bookies', as `embedbk bookie` makes them
    DIRECTORY/NAME.log                     what a peer wrote to its stderr; removed when it is empty
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from embedbk.client.address import url_of
from embedbk.client.beginning import check_bookies_path, holds_log, is_new, make
from embedbk.client.devices import Devices
from embedbk.client.peer_process import (
    STOP_TIMEOUT_S,
    Peer,
    check_interpreter,
    environment,
    start_peer,
    wait_ready,
)
from embedbk.codec.quorum_messages import QuorumTold
from embedbk.config import Settings, check_flag, check_seconds, settings_of
from embedbk.errors import EmbedbkError, OperationTimeout, UsageError
from embedbk.ids import check_bookie_id
from embedbk.quorum import Quorum, all_vote, listened_at

__all__ = ["Cluster", "Peer", "environment"]

logger = logging.getLogger(__name__)

METADATA = "metadata"  # Directory of the first member, as an embedded cluster has it, too.
FIRST = "m1"
MEMBERS_MAX = 7
FROM_PARENT = "-"  # Where others are: the starter says it, on the parent's pipe.
BOOKIES_MAX = 64


class Cluster:
    """Metadata members and bookies, each in a process of its own, on loopback.

    Args:
        directory: where they live; a temporary one, removed at the end, if None.
        bookies: how many, named b1, b2 ...
        members: how many metadata members, named m1, m2 ...: 1, 3, 5 or 7. One of three may fail, two of five. An
            existing cluster may be opened with more of them: they join, and all vote, also those that an earlier start
            let in and was ended. With several, each listens where it did before, or at a new address where that one is
            taken, or is not this machine's any more.
        listen: "tcp://127.0.0.1:0", or "ipc://PATH": then PATH.NAME are the sockets.
        settings: times and sizes for all of them; `open_timeout_s` is for the whole start.
        create: whether missing or empty directories become those of a new cluster, or of new bookies; as `embedbk.open`
            takes it.
        journal_directories, ledger_directories, expands: journals and entry logs on other devices, as `embedbk.open`
            takes them: bookie b1 has `PATH/b1` in each. They are not removed with a temporary directory.

    Leaving the context stops every process. A child made by fork must not use it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        bookies: int = 4,
        *,
        listen: str = "tcp://127.0.0.1:0",
        settings: Settings | None = None,
        create: bool = True,
        journal_directories: Sequence[str | os.PathLike[str]] = (),
        ledger_directories: Sequence[str | os.PathLike[str]] = (),
        expands: bool = False,
        members: int = 1,
    ) -> None:
        if (
            isinstance(members, bool)
            or not isinstance(members, int)
            or members not in range(1, MEMBERS_MAX + 1, 2)
        ):
            raise UsageError(
                f"members={members!r}: 1, 3, 5 and 7 are allowed; an even number bears no more crashes than one less"
            )
        if isinstance(bookies, bool) or not isinstance(bookies, int) or not 1 <= bookies <= BOOKIES_MAX:
            raise UsageError(f"bookies={bookies!r}: a whole number from 1 to {BOOKIES_MAX} is allowed")
        self.settings = settings_of(settings)
        self.devices = Devices.of(journal_directories, ledger_directories, expands)
        self.members = tuple(f"m{number}" for number in range(1, members + 1))
        self.bookie_ids = tuple(f"b{number}" for number in range(1, bookies + 1))
        if not isinstance(create, bool):
            raise UsageError(f"create={create!r}: True and False are allowed")
        self._create = create
        self._given = None if directory is None else check_bookies_path(directory)
        self._listen = listen
        self._directory: Path | None = None
        self._peers: dict[str, Peer] = {}
        self._owner_pid = 0

    # What runs.

    @property
    def directory(self) -> Path:
        """Where the peers live, once started."""
        if self._directory is None:
            raise UsageError(
                "this cluster is not started", hint="call start(), or use it as a context manager"
            )
        return self._directory

    @property
    def url(self) -> str:
        """The address to open: `embedbk.open(cluster.url)`."""
        return url_of(self._endpoints())

    def _endpoints(self) -> list[str]:
        """The endpoints of all members."""
        return [endpoint for name in self.members for endpoint in self._peer(name).endpoints]

    def leader(self, timeout_s: float | None = None) -> str:
        """The name of the metadata member that leads; waited for.

        Raises:
            OperationTimeout: nobody led within timeout_s (settings.open_timeout_s).
            MetadataUnavailable: no member answers.
        """
        running = [
            endpoint
            for name in self.members
            if self._peer(name).is_running
            for endpoint in self._peer(name).endpoints
        ]
        check_seconds(timeout_s, "timeout_s")
        timeout_s = self.settings.open_timeout_s if timeout_s is None else timeout_s
        return self._quorum(running or self._endpoints(), timeout_s).look_for_leader()[1].member.name

    def _quorum(self, endpoints: Sequence[str], timeout_s: float) -> Quorum:
        return Quorum(endpoints, timeout_s, self.settings.allow_non_loopback)

    @property
    def processes(self) -> Mapping[str, Peer]:
        """Every peer by name, "m1" ... and "b1", "b2" ...; also those that were killed."""
        return MappingProxyType(self._peers)

    def _peer(self, name: str) -> Peer:
        peer = self._peers.get(name) if isinstance(name, str) else None
        if peer is None:
            there = ", ".join(self._peers) or "none: it is not started"
            raise UsageError(f"this cluster has no process {name!r}; there are {there}")
        return peer

    # Starting.

    def start(self) -> Self:
        """Start everything and wait until all of it serves.

        Raises:
            UsageError, StorageError: a peer cannot serve; it says why. Nothing is left running.
            OperationTimeout: not all served within settings.open_timeout_s.
            EmbedbkError: a peer ended without a word; the last line of its log is in the message.
        """
        if self._peers:
            raise UsageError("this cluster runs already", hint="stop() it first")
        check_interpreter()
        self._owner_pid = os.getpid()
        self._directory = self._make_directory()
        try:
            # All at once: the others load their code while the first member finds its port.
            joining = [name for name in self.members if not holds_log(self._home(name))]
            members = [self._spawn(name, self._listen_of(name)) for name in self.members]
            bookies = [self._spawn(bookie_id, self._listen_of(bookie_id)) for bookie_id in self.bookie_ids]
            deadline = time.monotonic() + self.settings.open_timeout_s
            wait_ready(members[:1], self.settings.open_timeout_s, deadline)
            for member in members[1:]:
                member.say(",".join(members[0].endpoints))
            wait_ready(members[1:], self.settings.open_timeout_s, deadline)
            if len(members) > 1:
                quorum = self._quorum(members[0].endpoints, deadline - time.monotonic())
                quorum.change(
                    lambda leader: all_vote(leader) if joining or self._only_learns(leader) else None,
                    "the change by which all members vote",
                )
            for bookie in bookies:
                bookie.say(",".join(self._endpoints()))
            wait_ready(bookies, self.settings.open_timeout_s, deadline)
        except BaseException:
            self._end(self._peers.values(), signal.SIGKILL)
            self._forget_all()
            raise
        return self

    def _only_learns(self, leader: QuorumTold) -> bool:
        """Whether a member never voted: an earlier start let it in, and ended before all voted."""
        voters = {each.member.name for each in leader.members if each.role == "voter"}
        learners = {each.member.name for each in leader.members if each.role == "learner"}
        return not voters >= learners & set(self.members)

    def _make_directory(self) -> Path:
        if self._given is None:
            return Path(tempfile.mkdtemp(prefix="embedbk-"))
        is_new(self._given, create=self._create)
        self._refuse_fewer()
        self.devices.look(create=self._create)
        begins = not holds_log(self._given / METADATA)
        make(self._given)
        if begins or self.devices.expands:  # Else no directory is missing that may be new.
            self.devices.make()
        return self._given

    def _refuse_fewer(self) -> None:
        """Raise if fewer members are opened than vote: they could elect no leader."""
        there = [FIRST] if holds_log(self._home(FIRST)) else []
        there += [f"m{number}" for number in range(2, MEMBERS_MAX + 1) if holds_log(self._home(f"m{number}"))]
        if set(there) - set(self.members):
            raise UsageError(
                f"members={len(self.members)}: {self._given} has {len(there)} metadata members: {', '.join(there)}",
                hint=f"give members={len(there)}",
            )

    def _home(self, name: str) -> Path:
        """The directory of a peer."""
        root = self._given if self._directory is None else self._directory
        assert root is not None
        return root / (METADATA if name == FIRST else name)

    def _listen_of(self, name: str) -> list[str]:
        if len(self.members) > 1 and name in self.members:
            known = listened_at(self._home(name))  # The others look for it there.
            if known and all(map(_can_be_bound, known)):
                return known
            # Another program has that port, or the directory moved here: the member tells the leader its new one.
            if known:
                logger.warning("%s cannot listen at %s any more; it gets a new one", name, ", ".join(known))
        return [f"{self._listen}.{name}" if self._listen.startswith("ipc://") else self._listen]

    def _spawn(self, name: str, listen: list[str]) -> Peer:
        settings, directory = self.settings, self.directory
        command = [sys.executable, "-P", "-m", "embedbk"]
        if name in self.members:
            command += ["metadata"]
            if name != FIRST:
                command += ["--name", name, "--join", FROM_PARENT]
            elif not holds_log(self._home(name)):
                command.append("--new")
        else:
            command += ["bookie", "--id", check_bookie_id(name), "--metadata", FROM_PARENT]
            command += ["--session-ttl-ms", str(settings.session_ttl_ms)]
            command += ["--collect-s", str(settings.collect_s)]
            command += ["--repair" if settings.repairs else "--no-repair"]
            command += ["--repair-grace-s", str(settings.repair_grace_s)]
            command += ["--repair-bytes-per-s", str(settings.repair_bytes_per_s)]
            command += ["--repair-ledgers-per-s", str(settings.repair_ledgers_per_s)]
            command += ["--balance-bytes-per-s", str(settings.balance_bytes_per_s)]
            command += ["--audit-s", str(settings.audit_s)]
            command += ["--scrub-bytes-per-s", str(settings.scrub_bytes_per_s)]
            for option, paths in (
                ("--journal-dir", self.devices.journals_of(name)),
                ("--ledger-dir", self.devices.ledgers_of(name)),
            ):
                command += [part for path in paths for part in (option, str(path))]
            command += ["--expand"] * self.devices.expands
        command += ["--dir", str(self._home(name)), "--journal-file-bytes", str(settings.journal_file_bytes)]
        for endpoint in listen:
            command += ["--listen", endpoint]
        if not self._create:
            command.append("--no-create")
        if settings.allow_non_loopback:
            command.append("--allow-non-loopback")
        peer = start_peer(name, command, directory / f"{name}.log")
        self._peers[name] = peer
        return peer

    # Ending.

    def kill(self, name: str) -> None:
        """SIGKILL one process and wait for its end; it stays dead until `restart`."""
        self._end([self._peer(name)], signal.SIGKILL)

    def restart(self, name: str) -> None:
        """Start one process again in its directory and wait until it serves; one that runs is stopped first.

        Raises:
            UsageError, StorageError, OperationTimeout: as `start`.
        """
        old = self._peer(name)
        self._end([old], signal.SIGTERM)
        # A member keeps its address, which others hold; a bookie registers whichever it gets.
        endpoints = self._endpoints()
        listen = old.endpoints if name in self.members else self._listen_of(name)
        old.forget()
        peer = self._spawn(name, listen)
        # Others hold them, also where this start fails and is tried again.
        peer.endpoints = old.endpoints
        if name != FIRST:
            peer.say(",".join(endpoints))
        try:
            wait_ready([peer], self.settings.open_timeout_s, time.monotonic() + self.settings.open_timeout_s)
        except BaseException:
            self._end([peer], signal.SIGKILL)
            raise

    def restart_all(self, *, wait_s: float = 300.0, accepts_outage: bool = False) -> None:
        """Restart every process, one after another, while clients append, as `embedbk cluster rolling` does: each when
        it may stop, the next when the one before is whole again. A leader hands over before. Processes that were
        killed stay so.

        wait_s: for each process to be allowed to stop, and again to be whole. accepts_outage: also the only metadata
        member; while it restarts nothing is created, opened or closed.

        Raises:
            UsageError: it cannot begin: none may stop, or the only metadata member is not to; nothing was changed.
            OperationTimeout: it ended before all were restarted; the message names the node, the reason and the rest.
        """
        check_flag(accepts_outage, "accepts_outage")
        if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= 1e9:
            raise UsageError(
                f"wait_s={wait_s!r:.80}: allowed are seconds from 0 to 1e9; nothing was restarted"
            )
        from embedbk.client.opening import open_client
        from embedbk.client.restarting import restart_nodes  # A starter of peers pays for no client.
        from embedbk.repair.restarting import RestartOptions

        def run(name: str, kind: str, limit_s: float) -> str:
            try:
                self.restart(name)
            except EmbedbkError as refused:
                return f"it does not start: {refused.args[0]}"
            return ""

        limit_ns = int(wait_s * 1e9)
        options = RestartOptions(limit_ns, limit_ns, (), accepts_outage)
        with open_client(self.url, settings=self.settings) as client:
            report = restart_nodes(client, run, options, lambda name, text: None)
        if report.is_interrupted:
            raise KeyboardInterrupt
        if not report.is_done:
            raise OperationTimeout(
                f"{report.failed}: {report.why}; restarted: {', '.join(report.done) or 'none'}; not touched: "
                f"{', '.join(report.left) or 'none'}",
                hint=report.hint,
            )

    def stop(self) -> None:
        """Stop every process in order, bookies first. Twice is allowed."""
        if not self._peers or os.getpid() != self._owner_pid:
            return
        self._end([peer for peer in self._peers.values() if peer.name not in self.members], signal.SIGTERM)
        self._end([peer for peer in self._peers.values() if peer.name in self.members], signal.SIGTERM)
        self._forget_all()

    def _end(self, peers: Iterable[Peer], number: int) -> None:
        """Send the signal to all, then wait for each; a process that does not end in time is killed."""
        peers = list(peers)
        for peer in peers:
            peer.send_signal(number)
            peer.send_signal(signal.SIGCONT)  # A stopped one ends too.
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for peer in peers:
            if not peer.wait(deadline - time.monotonic()):
                peer.send_signal(signal.SIGKILL)
                peer.wait()

    def _forget_all(self) -> None:
        for peer in self._peers.values():
            peer.forget()
        self._peers.clear()
        if self._given is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None

    def __enter__(self) -> Self:
        return self if self._peers else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Cluster({len(self._peers)} processes in {self._directory or self._given})"


def _can_be_bound(endpoint: str) -> bool:
    """Whether a peer can listen there now; of what is no TCP address with a port the peer itself tells."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not endpoint.startswith("tcp://") or not port.isdigit():
        return True
    with socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET) as probe:
        # As the transport does: a connection that ended a moment ago holds no port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError:
            return False
    return True
