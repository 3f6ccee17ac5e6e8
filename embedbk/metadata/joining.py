"""Which cluster a blank member may join: the token that a majority of a cluster's voters answer with (P10.3). Pure.

A member that was wiped, or is new, knows nothing, and must not believe the first answer: a machine that was taken out
long ago would lead it into a cluster that is gone. It asks its seeds, then all members that they name, and takes
a token when a majority of the voters of the newest configuration that voters themselves report have answered with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from embedbk.codec.quorum_messages import MemberName, QuorumTold

__all__ = ["Adoption"]

SEEDS_MAX = 64


class Adoption:
    """The answers received so far. The last answer of each member counts."""

    def __init__(self, seeds: Sequence[str]) -> None:
        self.seeds = tuple(dict.fromkeys(seeds))
        self._told: dict[MemberName, QuorumTold] = {}

    def hear(self, endpoint: str, told: QuorumTold, promised: Sequence[bytes] = ()) -> None:
        """An answer to `QuorumStatus`, from there.

        promised: the formations that this member promised to take part in, each of which becomes a cluster's token. It
        also asks the members that such a formation names, but counts no other cluster of theirs: at these addresses
        another cluster may exist already.
        """
        if not told.cluster_token or (endpoint not in self.endpoints and told.cluster_token not in promised):
            return
        if told.member in self._told or len(self._told) < SEEDS_MAX:
            self._told[told.member] = told

    @property
    def met(self) -> bytes:
        """The token of the cluster in the first answer that counts; empty: none."""
        return next((told.cluster_token for told in self._told.values()), b"")

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The addresses to ask: the seeds, and every member that was named in an answer."""
        named = [
            endpoint
            for told in self._told.values()
            for member in told.members
            for endpoint in member.endpoints
        ]
        return tuple(dict.fromkeys((*self.seeds, *named)))[: 2 * SEEDS_MAX]

    @property
    def token(self) -> bytes:
        """The token of the cluster that it may join; empty: not known yet."""
        newest = self._newest()
        if newest is None or self.conflict or newest.is_joint:
            return b""
        voters = _voters(newest)
        answered = [voter for voter in voters if voter in self._told]
        return newest.cluster_token if 2 * len(answered) > len(voters) else b""

    @property
    def conflict(self) -> str:
        """Why no further answer can help; empty: one may."""
        clusters: dict[bytes, list[str]] = {}
        for member, told in self._told.items():
            clusters.setdefault(told.cluster_token, []).append(member.name)
        if len(clusters) < 2:
            return ""
        sides = "; ".join(f"{', '.join(names)} to {token.hex()}" for token, names in clusters.items())
        return f"those that answered belong to different clusters: {sides}"

    @property
    def why_not(self) -> str:
        """Why there is no token yet, for people."""
        newest = self._newest()
        if newest is None:
            return f"no voter answered at {', '.join(self.seeds)}"
        if newest.is_joint:
            return "a change of the voters is under way"
        voters = _voters(newest)
        silent = [
            f"{each.member.name} at {', '.join(each.endpoints) or 'an unknown address'}"
            for each in newest.members
            if each.member in voters and each.member not in self._told
        ]
        answered = len(voters) - len(silent)
        return f"{answered} of {len(voters)} voters answered, more than half must; not: {'; '.join(silent)}"

    def _newest(self) -> QuorumTold | None:
        """The newest configuration that one of its own voters reports."""
        own = [told for told in self._told.values() if told.member in _voters(told)]
        return max(own, key=lambda told: (told.configuration, told.commit_index), default=None)


def _voters(told: QuorumTold) -> list[MemberName]:
    return [each.member for each in told.members if each.role == "voter"]
