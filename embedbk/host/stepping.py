"""The steps of a bookie's core, one behind the other.

Order is the contract: the core receives what became durable, and what the add path took beside it, before any other
event, so that no answer can leave early; effects are carried out in list order; an event that occurs meanwhile follows
behind them. Lookups that wait for their turn are made when no event is left, and answers that gather leave at the end.
Decides nothing of the protocol. Leaves to `bookie_node` how an effect is carried out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from embedbk.codec.add_messages import AddAnswers
from embedbk.codec.frame import frame_of
from embedbk.codec.messages import decode_message
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import AddsTaken, JournalDurable, Reply, RequestReceived, StoreFrame
from embedbk.core.machine import Effect, Event
from embedbk.host.client_links import ClientLinks
from embedbk.host.reading import WaitingReads
from embedbk.ports.durable_bookie import DurableBookie

__all__ = ["OnStep", "Stepping"]

OnStep = Callable[[Bookie, Event, list[Effect]], None]


class Stepping:
    """The one place where the core of a bookie is stepped.

    durable: the journal's records up to this token are; the core receives it when it waits for it, or before its next
    event. due_ns: when the node's duties are due, as it said since the last step, which may have moved them; 0: none of
    that is known. on_step: told of each step, before its effects are carried out (testing).
    """

    def __init__(
        self,
        core: Bookie,
        storage: DurableBookie,
        clients: ClientLinks,
        reads: WaitingReads,
        carry_out: Callable[[Effect, int], None],
        make_read: Callable[[int], Event | None],
    ) -> None:
        """make_read: makes one of the lookups that wait, if the turn of one has come, and returns its outcome."""
        self.durable = core.replies.durable
        self.due_ns = 0
        self.on_step: OnStep | None = None
        self._core = core
        self._storage = storage
        self._clients = clients
        self._reads = reads
        self._carry_out = carry_out
        self._make_read = make_read
        self._events: deque[Event] = deque()
        self._is_stepping = False
        self._taken = 0  # The adds taken by the add path, as far as the core knows.

    def note_durable(self, token: int) -> None:
        self.durable = token

    def rest_until(self, due_ns: int) -> None:
        """Unless the core is stepped before, nothing but adds is due until then."""
        self.due_ns = due_ns

    def step(self, event: Event | None, now_ns: int = 0) -> None:
        """Step the core and carry its effects out; events that occur meanwhile follow behind them. With None, only
        deliver what the add path took and the journal made durable, which comes before any event."""
        self.due_ns = 0
        if event is not None:
            now_ns = event.now_ns
        if not self._is_stepping:
            self._catch_up(now_ns)
        if event is not None:
            self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        core, path = self._core, self._storage.add_path
        while True:
            if self._events:
                event = self._events.popleft()
                effects = core.step(event)
                if path is not None and path.parked.uncounted:
                    self._count_polls(path.parked.uncounted)
                if self.on_step is not None:
                    self.on_step(core, event, effects)
                for effect in effects:
                    self._carry_out(effect, event.now_ns)
            elif self._reads and (found := self._make_read(now_ns)) is not None:
                # One by one: the entries that the one before it found are sent, and count.
                self._events.append(found)
            else:
                break
        self._clients.send_gathered()
        self._is_stepping = False

    def _count_polls(self, links: list[int]) -> None:
        """Count polls that were taken in C and that the core has to answer now."""
        for link in links:
            self._clients.note_asked(link)
        links.clear()

    def _catch_up(self, now_ns: int) -> None:
        path = self._storage.add_path
        if path is not None and (taken := path.taken()) != self._taken:
            self._taken = taken
            self._events.append(AddsTaken(now_ns, self._storage.next_token()))
        replies = self._core.replies
        if self.durable > replies.durable and replies.failure is None:
            self._events.append(JournalDurable(now_ns, self.durable))

    # `on_step` is shown what the add path did beside the core.

    def show_taken(self, now_ns: int, link: int, body: bytes | memoryview) -> None:
        """What the core would have done with an add that C took."""
        assert self.on_step is not None
        self.step(None, now_ns)
        message = decode_message(body)
        frame = frame_of(message.frames[0][1])
        request = RequestReceived(now_ns, link, message.request_id, message.control, message.frames)
        self.on_step(self._core, request, [StoreFrame(self._core.records.next_token - 1, frame)])

    def show_answered(self, now_ns: int, link: int, body: bytes) -> None:
        """The same of what C answered to adds."""
        assert self.on_step is not None
        message = decode_message(body)
        control = message.control
        given = control.unpack() if isinstance(control, AddAnswers) else [(message.request_id, control)]
        replies: list[Effect] = [Reply(link, request_id, answer) for request_id, answer in given]
        self.on_step(self._core, JournalDurable(now_ns, self.durable), replies)
