"""An executable specification of the published ledger protocol: states and allowed steps, nothing else.

It restates the rules of the public BookKeeperProtocol specification (one ledger, E = Qw, entries from 1) in plain
tuples, and imports nothing of the product: what it says cannot be wrong in the same way as the core. `explore` walks
its states. Where the published rules have a quirk it is kept, and said, because the reference state counts depend on
it; our own protocol, which is richer, is `trace_spec`.

A state is (messages, metadata, bookies, client, client, ...): `messages` is one number with two bits for each message
ever possible, the others are numbers of parts that `Spec.parts` holds once each. A message is absent, processed,
deliverable or lost; whether it is lost is chosen when it is sent, and a lost one is what a time-out sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

__all__ = ["MUTANTS", "Constants", "Spec", "State"]

State = tuple[int, ...]

# Statuses of the ledger and of a client.
NEW, OPEN, IN_RECOVERY, CLOSED, WITHDRAWN, ABORTED = (
    "new",
    "open",
    "in recovery",
    "closed",
    "withdrawn",
    "aborted",
)
# Phases of a recovering client.
NOT_STARTED, FENCING, READING = 0, 1, 2
# Kinds of messages.
ADD, ADDED, FENCE, FENCED, READ, READ_DONE = "add", "added", "fence", "fenced", "read", "read done"
# The two bits of a message.
ABSENT, PROCESSED, DELIVERABLE, LOST = 0, 1, 2, 3

MUTANTS = {
    "coverage-one-fewer": "quorum coverage needs one bookie fewer",
    "timeout-is-negative": "a time-out counts as NoSuchEntry",
    "one-negative-ends": "a single NoSuchEntry ends recovery",
    "close-unchecked": "the writer closes without looking at version and status",
    "fence-needs-ledger": "a bookie that does not know the ledger ignores the fence",
    "add-on-fenced": "a normal add is accepted on a fenced ledger",
    "close-before-written": "recovery closes before its write-backs are confirmed",
    "lac-with-gaps": "the LAC is the highest entry with an ack quorum, whatever is below it",
    "fragments-unpublished": "recovery closes without publishing its fragments",
    "recovery-close-unchecked": "recovery closes without compare-and-set",
    "reads-do-not-fence": "recovery reads do not fence",
}


@dataclass(frozen=True)
class Constants:
    bookies: int
    clients: int
    write_quorum: int
    ack_quorum: int
    send_limit: int = 1
    inflight_limit: int = 1


class Message(NamedTuple):
    kind: str
    bookie: int
    client: int
    entry: tuple[int, int | None]  # (id, data); data None where there is none.
    recovery: bool = False
    lac: int = 0
    ok: bool = True  # Added: stored (else fenced). Read done: the entry is there (else NoSuchEntry).


class Metadata(NamedTuple):
    status: str
    fragments: tuple[tuple[int, int, int], ...]  # (number, ensemble as bits, first entry)
    last_entry: int
    version: int


class Bookie(NamedTuple):
    entries: tuple[tuple[int, int], ...]  # (id, data), ascending.
    is_fenced: bool
    lac: int


class Client(NamedTuple):
    version: int | None
    status: str
    fragments: tuple[tuple[int, int, int], ...]  # The last one is the current one.
    pending: tuple[tuple[tuple[int, int], int, int], ...]  # (entry, fragment number, ensemble it was sent to)
    lap: int
    lac: int
    confirmed: tuple[int, ...]  # Bookies as bits, for entry 1, 2 ...
    fenced: int
    recovery_ensemble: int
    reading: int | None
    responses: int  # Set of message numbers, as bits.
    phase: int
    end: int | None  # Last recoverable entry.


Step = tuple[str, State]


class Spec:
    """The protocol under given constants, with the named rules broken on purpose."""

    def __init__(self, constants: Constants, mutants: Sequence[str] = ()) -> None:
        assert set(mutants) <= set(MUTANTS)
        self.constants = constants
        self.mutants = frozenset(mutants)
        self.parts: list[Any] = []  # Metadata, lists of bookies, clients: each distinct one once.
        self._numbers: dict[Any, int] = {}
        self.messages: list[Message] = []
        self._message_numbers: dict[Message, int] = {}
        self._low_bits = 0  # The lower bit of every message known.
        self._verdicts: dict[tuple[int, ...], str | None] = {}
        self._ensembles = [
            bits for bits in range(1 << constants.bookies) if bits.bit_count() == constants.write_quorum
        ]

    # Parts and messages as numbers.

    def number(self, part: Any) -> int:
        number = self._numbers.get(part)
        if number is None:
            number = self._numbers[part] = len(self.parts)
            self.parts.append(part)
        return number

    def message(self, message: Message) -> int:
        number = self._message_numbers.get(message)
        if number is None:
            number = self._message_numbers[message] = len(self.messages)
            self.messages.append(message)
            self._low_bits |= 1 << 2 * number
        return number

    def initial(self) -> State:
        nobody = Client(
            None, NEW, (), (), 0, 0, (0,) * self.constants.send_limit, 0, 0, None, 0, NOT_STARTED, None
        )
        bookies = (Bookie((), False, 0),) * self.constants.bookies
        clients = [self.number(nobody)] * self.constants.clients
        return (0, self.number(Metadata(NEW, (), 0, 0)), self.number(bookies), *clients)

    def _send(self, bag: int, messages: Sequence[Message]) -> list[int]:
        """The bags after sending these, each delivered or lost; none when one of them was sent before."""
        shifts = [2 * self.message(message) for message in messages]
        if any(bag >> shift & 3 for shift in shifts):
            return []
        fates = product((DELIVERABLE, LOST), repeat=len(shifts))
        return [
            bag | sum(fate << shift for fate, shift in zip(chosen, shifts, strict=True)) for chosen in fates
        ]

    def _matching(self, bag: int, fate: int) -> Iterator[int]:
        """Numbers of the messages in this condition."""
        high, low = bag >> 1, bag
        found = (high & ~low if fate == DELIVERABLE else high & low) & self._low_bits
        while found:
            bit = found & -found
            yield bit.bit_length() >> 1
            found ^= bit

    # Steps.

    def steps(self, state: State) -> list[Step]:
        """Every allowed step: its name and the state after it; one state may be given by several."""
        bag, meta_number, _, *client_numbers = state
        meta: Metadata = self.parts[meta_number]
        clients: list[Client] = [self.parts[number] for number in client_numbers]
        steps: list[Step] = []
        deliverable = list(self._matching(bag, DELIVERABLE))
        for number in deliverable:
            message = self.messages[number]
            # Deliverable (10) becomes processed (01): the same as taking one off the two bits.
            processed = bag - (1 << 2 * number)
            if message.kind in (ADD, FENCE, READ):
                self._bookie_receives(state, message, processed, deliverable, steps)
            else:
                self._client_receives(
                    state, meta, clients[message.client], number, processed, deliverable, steps
                )
        for who, client in enumerate(clients):
            if client.status == NEW:
                self._starts(state, meta, who, client, steps)
            elif client.status == OPEN:
                self._writes(state, meta, who, client, steps)
            elif client.status == IN_RECOVERY:
                self._recovers(state, meta, who, client, steps)
        return steps

    def _with_client(
        self, state: State, who: int, client: Client, bag: int, meta: int | None = None
    ) -> State:
        changed = list(state)
        changed[0] = bag
        if meta is not None:
            changed[1] = meta
        changed[3 + who] = self.number(client)
        return tuple(changed)

    def _is_earliest(self, message: Message, deliverable: Sequence[int]) -> bool:
        """Adds and their answers arrive in entry order between one client and one bookie."""
        if self.constants.send_limit == 1:
            return True
        for number in deliverable:
            other = self.messages[number]
            if (
                (other.kind, other.recovery, other.client, other.bookie)
                == (message.kind, message.recovery, message.client, message.bookie)
                and other.entry[0] < message.entry[0]
            ):  # fmt: skip
                return False
        return True

    # Bookies.

    def _bookie_receives(
        self, state: State, message: Message, bag: int, deliverable: Sequence[int], steps: list[Step]
    ) -> None:
        bookies: tuple[Bookie, ...] = self.parts[state[2]]
        bookie = bookies[message.bookie]
        kind, at, who, entry, recovery, lac, _ = message
        if kind == ADD:
            if not self._is_earliest(message, deliverable):
                return
            taken = recovery or not bookie.is_fenced or "add-on-fenced" in self.mutants
            if taken:
                bookie = Bookie(tuple(sorted({*bookie.entries, entry})), bookie.is_fenced, lac)
            answer = Message(ADDED, at, who, entry, recovery, 0, taken)
        elif kind == FENCE:
            bookie = self._fence(bookie)
            answer = Message(FENCED, at, who, (0, None), False, bookie.lac)
        else:
            if "reads-do-not-fence" not in self.mutants:
                bookie = self._fence(bookie)
            held = dict(bookie.entries)
            answer = Message(READ_DONE, at, who, (entry[0], held.get(entry[0])), False, 0, entry[0] in held)
        after = state[2]
        if bookie is not bookies[at]:
            after = self.number((*bookies[:at], bookie, *bookies[at + 1 :]))
        name = f"b{at + 1} takes {kind}"
        taking = [(name, (sent, state[1], after, *state[3:])) for sent in self._send(bag, [answer])]
        # A recovery add to an unfenced ledger is allowed for two reasons, and counted for each.
        steps += taking
        if kind == ADD and recovery and not bookie.is_fenced:
            steps += taking

    def _fence(self, bookie: Bookie) -> Bookie:
        if "fence-needs-ledger" in self.mutants and not bookie.entries:
            return bookie
        return bookie if bookie.is_fenced else bookie._replace(is_fenced=True)

    # Answers to clients.

    def _client_receives(
        self, state: State, meta: Metadata, client: Client, number: int, bag: int, deliverable: Sequence[int],
        steps: list[Step],
    ) -> None:  # fmt: skip
        message = self.messages[number]
        who, name = message.client, f"c{message.client + 1} hears {message.kind}"
        if message.kind == ADDED:
            after = self._takes_added(client, message, deliverable)
        elif message.kind == FENCED:
            after = self._takes_fenced(client, message)
        else:
            after, bag = self._takes_read(client, message, number, state[0], bag)
        if after is not None:
            steps.append((name, self._with_client(state, who, after, bag)))

    def _takes_added(self, client: Client, message: Message, deliverable: Sequence[int]) -> Client | None:
        wanted = {OPEN: False, IN_RECOVERY: True}.get(client.status)
        if message.recovery is not wanted or not self._is_earliest(message, deliverable):
            return None
        if not client.fragments[-1][1] >> message.bookie & 1:
            return None  # Of a bookie replaced since.
        if not message.ok:
            return client._replace(status=WITHDRAWN) if client.status == OPEN else None
        confirmed = list(client.confirmed)
        confirmed[message.entry[0] - 1] |= 1 << message.bookie
        need = self.constants.ack_quorum
        lac = 0
        for index, bookies in enumerate(confirmed):
            if bookies.bit_count() >= need:
                lac = index + 1
            elif "lac-with-gaps" not in self.mutants:
                break
        pending = tuple(
            op for op in client.pending if confirmed[op[0][0] - 1].bit_count() < need or op[0][0] > lac
        )
        return client._replace(confirmed=tuple(confirmed), lac=max(lac, client.lac), pending=pending)

    def _takes_fenced(self, client: Client, message: Message) -> Client | None:
        if client.phase != FENCING:
            return None  # Late.
        # Never below the last fragment's first entry - 1.
        lac = max(message.lac, client.fragments[-1][2] - 1)
        fenced = client.fenced | 1 << message.bookie
        if lac > client.lac:
            return client._replace(fenced=fenced, lac=lac, lap=lac)
        return client._replace(fenced=fenced)

    def _takes_read(
        self, client: Client, message: Message, number: int, before: int, bag: int
    ) -> tuple[Client | None, int]:
        if client.status != IN_RECOVERY or client.phase != READING or message.entry[0] != client.reading:
            return None, bag
        responses = client.responses | 1 << number
        verdict = self._verdict(client, message.client, responses, before)
        if verdict is None:
            return client._replace(responses=responses), bag
        # The answers still on their way would be ignored. The published step also demands that nothing but this
        # message changes, so that it is taken only when no other one is deliverable: a quirk that the counts have.
        if self._ignores_others(client, message, number, before):
            return None, bag
        decided = client._replace(reading=None, responses=0)
        if verdict == "there":
            fragment = client.fragments[-1]
            data = message.entry[1]
            op = ((client.lap + 1, data), fragment[0], fragment[1])
            return decided._replace(lap=client.lap + 1, pending=tuple(sorted({*client.pending, op}))), bag
        decided = decided._replace(recovery_ensemble=0)
        if verdict == "not there":
            return decided._replace(end=message.entry[0] - 1), bag
        return decided._replace(status=ABORTED), bag

    def _verdict(self, client: Client, who: int, responses: int, bag: int) -> str | None:
        """Generous on positives, strict on negatives; None: more answers are needed."""
        answers = [self.messages[number] for number in _bits(responses)]
        if any(answer.ok for answer in answers):
            return "there"
        lost = 0
        for number in self._matching(bag, LOST):
            message = self.messages[number]
            if message.client == who and message.kind in (READ, READ_DONE):
                lost |= 1 << message.bookie
        timeouts = (lost & client.recovery_ensemble).bit_count()
        negatives = len(answers)
        if "timeout-is-negative" in self.mutants:
            negatives += timeouts
        if self._covers(negatives, self.constants.write_quorum) or "one-negative-ends" in self.mutants:
            return "not there"
        return "unknown" if len(answers) + timeouts == self.constants.write_quorum else None

    def _ignores_others(self, client: Client, message: Message, number: int, bag: int) -> bool:
        for other_number in self._matching(bag, DELIVERABLE):
            other = self.messages[other_number]
            if (
                other_number != number
                and other.kind in (READ, READ_DONE)
                and other.client == message.client
                and client.recovery_ensemble >> other.bookie & 1
            ):
                return True
        return False

    def _covers(self, count: int, cohort: int) -> bool:
        """No ack quorum of the cohort lacks the property."""
        need = cohort - self.constants.ack_quorum + 1
        return count >= need - ("coverage-one-fewer" in self.mutants)

    # What clients do by themselves.

    def _starts(self, state: State, meta: Metadata, who: int, client: Client, steps: list[Step]) -> None:
        if meta.status == NEW:
            fragments = ((1, self._ensembles[0], 1),)
            created = self.number(Metadata(OPEN, fragments, meta.last_entry, 1))
            after = client._replace(version=1, status=OPEN, fragments=fragments)
            steps.append((f"c{who + 1} creates", self._with_client(state, who, after, state[0], created)))
        elif meta.status in (OPEN, IN_RECOVERY):
            version, ensemble = meta.version + 1, meta.fragments[-1][1]
            marked = self.number(meta._replace(status=IN_RECOVERY, version=version))
            after = client._replace(
                version=version, status=IN_RECOVERY, phase=FENCING, fragments=meta.fragments,
                recovery_ensemble=ensemble,
            )  # fmt: skip
            fences = [Message(FENCE, bookie, who, (0, None)) for bookie in _bits(ensemble)]
            name = f"c{who + 1} starts recovery"
            steps += [
                (name, self._with_client(state, who, after, bag, marked))
                for bag in self._send(state[0], fences)
            ]

    def _adds(self, client: Client, who: int, entry: tuple[int, int], ensemble: int) -> list[Message]:
        recovery = client.status == IN_RECOVERY
        return [Message(ADD, bookie, who, entry, recovery, client.lac) for bookie in _bits(ensemble)]

    def _writes(self, state: State, meta: Metadata, who: int, client: Client, steps: list[Step]) -> None:
        bag, fragment, name = state[0], client.fragments[-1], f"c{who + 1}"
        if client.lap - client.lac < self.constants.inflight_limit and client.lap < self.constants.send_limit:
            entry = (client.lap + 1, client.lap + 1)
            op = (entry, fragment[0], fragment[1])
            after = client._replace(lap=client.lap + 1, pending=tuple(sorted({*client.pending, op})))
            steps += [
                (f"{name} adds {entry[0]}", self._with_client(state, who, after, sent))
                for sent in self._send(bag, self._adds(client, who, entry, fragment[1]))
            ]
        if meta.status == OPEN:
            self._changes_ensemble(state, meta, who, client, steps)
        self._resends(state, who, client, steps)
        is_current = client.version == meta.version and meta.status == OPEN
        if is_current or "close-unchecked" in self.mutants:
            closed = self.number(Metadata(CLOSED, meta.fragments, client.lac, meta.version + 1))
            after = client._replace(version=meta.version + 1, status=CLOSED)
            steps.append((f"{name} closes", self._with_client(state, who, after, bag, closed)))
        if meta.status != OPEN:
            after = client._replace(status=WITHDRAWN, version=None)
            steps.append((f"{name} fails to close", self._with_client(state, who, after, bag)))

    def _recovers(self, state: State, meta: Metadata, who: int, client: Client, steps: list[Step]) -> None:
        bag, name = state[0], f"c{who + 1}"
        if meta.status == IN_RECOVERY:
            self._changes_ensemble(state, meta, who, client, steps)
        self._resends(state, who, client, steps)
        cohort = client.recovery_ensemble
        if client.phase == READING:
            may_read = client.end is None and client.reading is None
        else:
            may_read = self._covers(client.fenced.bit_count(), cohort.bit_count())
        if may_read:
            entry_id = client.lap + 1
            after = client._replace(phase=READING, reading=entry_id, fenced=0)
            reads = [Message(READ, bookie, who, (entry_id, None)) for bookie in _bits(cohort)]
            steps += [
                (f"{name} reads {entry_id}", self._with_client(state, who, after, sent))
                for sent in self._send(bag, reads)
            ]
        if client.phase != READING:
            return
        unsent = [op for op in client.pending if not self._is_written_back(bag, who, op[0])]
        lowest = min((op[0][0] for op in unsent), default=0)
        for op in unsent:
            if op[0][0] == lowest:
                adds = self._adds(client, who, op[0], client.fragments[-1][1])
                steps += [
                    (f"{name} writes back {lowest}", (sent, *state[1:])) for sent in self._send(bag, adds)
                ]
        is_current = meta.version == client.version and meta.status == IN_RECOVERY
        is_written = not client.pending or "close-before-written" in self.mutants
        if (
            client.end is not None
            and is_written
            and (is_current or "recovery-close-unchecked" in self.mutants)
        ):
            fragments = meta.fragments if "fragments-unpublished" in self.mutants else client.fragments
            last = client.lac if "close-before-written" in self.mutants else client.end
            closed = self.number(Metadata(CLOSED, fragments, last, meta.version + 1))
            after = client._replace(status=CLOSED, version=(client.version or 0) + 1)
            steps.append((f"{name} closes by recovery", self._with_client(state, who, after, bag, closed)))

    def _is_written_back(self, bag: int, who: int, entry: tuple[int, int]) -> bool:
        for number, message in enumerate(self.messages):
            is_it = (
                message.kind == ADD and message.recovery and message.client == who and message.entry == entry
            )
            if is_it and bag >> 2 * number & 3:
                return True
        return False

    def _changes_ensemble(
        self, state: State, meta: Metadata, who: int, client: Client, steps: list[Step]
    ) -> None:
        recovery = client.status == IN_RECOVERY
        number, ensemble, fragment_first = client.fragments[-1]
        if any(op[1:] != (number, ensemble) for op in client.pending):
            return  # What an earlier change left to be sent goes first.
        if not recovery and client.version != meta.version:
            return
        late = 0
        for index in self._matching(state[0], LOST):
            message = self.messages[index]
            if message.client == who and message.kind in (ADD, ADDED) and message.recovery == recovery:
                late |= 1 << message.bookie
        # All of those that timed out are replaced together, and nobody else.
        failed = late & ensemble
        if not failed:
            return
        good, used = ensemble & ~failed, {fragment[1] for fragment in meta.fragments}
        chosen = next(
            (e for e in self._ensembles if not e & failed and e & good == good and e not in used), None
        )
        if chosen is None:
            return
        first = client.lac + 1
        if first == fragment_first:
            fragments = (*client.fragments[:-1], (number, chosen, first))
        else:
            fragments = (*client.fragments, (len(client.fragments) + 1, chosen, first))
        confirmed = tuple(
            bookies & ~failed if index + 1 >= first else bookies
            for index, bookies in enumerate(client.confirmed)
        )
        bag = state[0]
        for index in list(self._matching(bag, LOST)):
            message = self.messages[index]
            if (
                message.client == who and message.kind in (ADD, ADDED)
                and message.recovery == recovery and failed >> message.bookie & 1
            ):  # fmt: skip
                bag -= (LOST - PROCESSED) << 2 * index  # The time-out was acted upon.
        after = client._replace(confirmed=confirmed, fragments=fragments)
        published = None
        if not recovery:
            after = after._replace(version=meta.version + 1)
            published = self.number(meta._replace(fragments=fragments, version=meta.version + 1))
        steps.append((f"c{who + 1} changes ensemble", self._with_client(state, who, after, bag, published)))

    def _resends(self, state: State, who: int, client: Client, steps: list[Step]) -> None:
        if not client.pending:
            return
        number, ensemble, _ = client.fragments[-1]
        for op in client.pending:
            if op[1:] == (number, ensemble):
                continue
            if any(other[1:] == op[1:] and other[0][0] < op[0][0] for other in client.pending):
                continue
            pending = tuple(
                sorted((op[0], number, ensemble) if other == op else other for other in client.pending)
            )
            after = client._replace(pending=pending)
            steps += [
                (f"c{who + 1} resends {op[0][0]}", self._with_client(state, who, after, bag))
                for bag in self._send(state[0], self._adds(client, who, op[0], ensemble & ~op[2]))
            ]

    def lost_count(self, state: State) -> int:
        """Messages that are lost and not acted upon: what a directed exploration keeps small."""
        return (state[0] >> 1 & state[0] & self._low_bits).bit_count()

    # Invariants.

    def broken(self, state: State) -> str | None:
        """The name of an invariant that the state breaks, if it breaks one. Messages have no part in any."""
        key = state[1:]
        if key not in self._verdicts:
            self._verdicts[key] = self._judge(state)
        return self._verdicts[key]

    def _judge(self, state: State) -> str | None:
        meta: Metadata = self.parts[state[1]]
        bookies: tuple[Bookie, ...] = self.parts[state[2]]
        clients: list[Client] = [self.parts[number] for number in state[3:]]
        if meta.status not in (NEW, OPEN, IN_RECOVERY, CLOSED) or meta.last_entry < 0 or meta.version < 0:
            return "types"
        if meta.status == CLOSED and any(client.lac > meta.last_entry for client in clients):
            return "no divergence"  # A client had an entry confirmed beyond the end: truncated.
        held = [frozenset(entry_id for entry_id, _ in bookie.entries) for bookie in bookies]
        for client in clients:
            # The writer that was fenced is the interesting one: withdrawn clients are looked at as well.
            if client.status in (OPEN, CLOSED, WITHDRAWN):
                for entry_id in range(1, client.lac + 1):
                    ensemble = _fragment_of(entry_id, meta.fragments)[1]
                    if not any(entry_id in held[bookie] for bookie in _bits(ensemble)):
                        return "acked is readable"
        if meta.status == CLOSED:
            for entry_id in range(1, meta.last_entry + 1):
                ensemble = _fragment_of(entry_id, meta.fragments)[1]
                copies = sum(entry_id in held[bookie] for bookie in _bits(ensemble))
                if copies < self.constants.ack_quorum:
                    return "committed reach ack quorum"
        if any(entry_id != data for bookie in bookies for entry_id, data in bookie.entries):
            return "order"
        return None


def _fragment_of(entry_id: int, fragments: tuple[tuple[int, int, int], ...]) -> tuple[int, int, int]:
    return next(fragment for fragment in reversed(fragments) if fragment[2] <= entry_id)


def _bits(mask: int) -> list[int]:
    return [index for index in range(mask.bit_length()) if mask >> index & 1]
