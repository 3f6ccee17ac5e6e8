"""Every entry of every ledger on every bookie that should hold it, checked (SCRUB.md).

from embedbk.scrub import ScrubOptions, scrub

result = scrub(client, ScrubOptions(mbps_max=50))
print(result, *result.findings, sep="\\n")
"""

from embedbk.scrub.judging import CopyFinding
from embedbk.scrub.options import ScrubOptions, ScrubResult
from embedbk.scrub.scrubbing import scrub

__all__ = ["CopyFinding", "ScrubOptions", "ScrubResult", "scrub"]
