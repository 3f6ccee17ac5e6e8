"""How much one client has under way with the quorum, and when it asks again (METADATA.md, 5). Pure.

Links lose nothing without ending, so a late answer means that a node is slow, and asking again makes that worse. So
a client asks again later each time, and no earlier than twice its usual wait; and it has no more under way than is
answered without a queue: the window grows while answers come about as fast as the fastest did, and is halved, once
per wait, when they come later than that by SLOW_NS or are put off (BUSY).
"""

from __future__ import annotations

__all__ = ["IN_FLIGHT_MAX", "WINDOW_START", "Pace"]

IN_FLIGHT_MAX = 128  # The widest window: requests sent and not answered.
WINDOW_START = 16
WINDOW_MIN = 4  # One sync serves all that wait for it, so a slow disk is no reason to go one by one.
SLOW_NS = 250_000_000  # An answer that is later by this than the fastest one waited in a queue.
FASTEST_NS = 30_000_000_000  # The fastest answer of this time and the one before it counts.
RESEND_NS_MAX = 15_000_000_000
PUT_OFF_NS_MIN = 100_000_000  # Pause after BUSY; doubles each time.
PUT_OFF_NS_MAX = 5_000_000_000


class Pace:
    """The pace of one client. All times are of the host's clock."""

    def __init__(self) -> None:
        self.window = WINDOW_START
        self.usual_ns = 0  # How long answers take, smoothed; 0: none came.
        self._is_starting = True
        self._answers = 0  # Answers since the window last grew.
        self._shrunk_until_ns = 0
        self._fastest_ns: list[int] = []  # The fastest answers of the present and of the last period.
        self._period_until_ns = 0

    def answered(self, sent_ns: int, now_ns: int, under_way: int) -> None:
        """An answer came to a request that was first sent at sent_ns, while so many were under way."""
        took_ns = max(now_ns - sent_ns, 1)
        self.usual_ns = (7 * self.usual_ns + took_ns) // 8 if self.usual_ns else took_ns
        self._note_fastest(took_ns, now_ns)
        if took_ns - min(self._fastest_ns) > SLOW_NS:
            self._shrink(now_ns)
        elif under_way >= self.window and self.window < IN_FLIGHT_MAX:
            self._answers += 1
            if self._is_starting or self._answers >= self.window:
                self.window, self._answers = self.window + 1, 0

    def put_off(self, sequence: int, times: int, now_ns: int) -> int:
        """The quorum has no room; when to send this request again, after so many refusals."""
        self._shrink(now_ns)
        wait_ns = min(PUT_OFF_NS_MIN << min(times, 16), PUT_OFF_NS_MAX)
        return now_ns + wait_ns + wait_ns * (sequence * 7919 % 64) // 128  # Not all of them in one moment.

    def resend_at(self, first_ns: int, times: int, now_ns: int) -> int:
        """When to send a request again that is sent now, if it gets no answer. times: how often it was sent before."""
        wait_ns = max(first_ns, 2 * self.usual_ns) << min(times, 16)
        return now_ns + min(wait_ns, max(RESEND_NS_MAX, first_ns))

    def _note_fastest(self, took_ns: int, now_ns: int) -> None:
        if now_ns >= self._period_until_ns:
            self._period_until_ns = now_ns + FASTEST_NS
            self._fastest_ns = [took_ns, *self._fastest_ns[:1]]
        else:
            self._fastest_ns[0] = min(self._fastest_ns[0], took_ns)

    def _shrink(self, now_ns: int) -> None:
        """Halve the window; then wait until all requests sent with the wider one are answered."""
        self._is_starting = False
        if now_ns >= self._shrunk_until_ns:
            self.window = max(WINDOW_MIN, self.window // 2)
            self._answers = 0
            self._shrunk_until_ns = now_ns + max(self.usual_ns, SLOW_NS)
