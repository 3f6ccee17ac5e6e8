"""Where the space of a cluster is: by log and owner, by age, by bookie; what could be freed, what grows (REPORT.md)."""

from embedbk.report.figures import SpaceReport
from embedbk.report.gathering import space_report

__all__ = ["SpaceReport", "space_report"]
