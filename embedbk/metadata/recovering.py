"""Which lineages a recovery of metadata gives up, and whether committed entries may be lost (METADATA.md, 10; P10.5).

Pure. Decides both from the answers of nodes and from the recovered state. The command (cli/backup.py) decides which
nodes are asked and what an operator must accept; storage/kept_metadata.py writes the result.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from embedbk.codec.lineages import LINEAGES_NAMED_MAX
from embedbk.codec.metadata_messages import GENERATION_BITS, Lineage
from embedbk.codec.quorum_messages import MetTold
from embedbk.errors import UsageError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.quorum import Configuration, MemberId

__all__ = ["given_up", "why_uncertain"]


def given_up(catalog: Catalog, cluster_token: bytes, heard: Iterable[MetTold]) -> tuple[Lineage, ...]:
    """Every lineage that a node of this cluster met and this state does not descend from; and, if one that it does
    descend from was met in a higher generation than all these, that one in this generation.

    Raises UsageError: these are more than one command names.
    """
    met: dict[bytes, int] = {}
    for each in heard:
        if each.cluster_token == cluster_token:
            met[each.lineage] = max(met.get(each.lineage, 0), each.revision >> GENERATION_BITS)
    known = {b"", *(each.name for each in catalog.descent.lineages)}
    lineages = [Lineage(name, at) for name, at in met.items() if name not in known]
    own = max([catalog.revision >> GENERATION_BITS, *(each.generation for each in lineages)])
    lineages += [Lineage(name, at) for name, at in met.items() if name in known and at > own]
    if len(lineages) > LINEAGES_NAMED_MAX:
        raise UsageError(f"{len(lineages)} lineages were met, allowed are {LINEAGES_NAMED_MAX}")
    return tuple(lineages)


def why_uncertain(configuration: Configuration, whole: Container[MemberId]) -> str:
    """Why what was committed may be in none of these logs, of which each has all that its member acknowledged; empty:
    it is certain that nothing is lost. Any n - Qc + 1 voters of each set have one in common with every commit quorum.
    """
    for voters, sizes in configuration.halves():
        there, needed = sum(each in whole for each in voters), len(voters) - sizes.commit + 1
        if there < needed:
            return f"{there} of {len(voters)} voters are here whole, and it is certain with {needed}"
    return ""
