"""Whole clusters in one process under one seed: production code, virtual time, faults, and watchers that find lies."""

from __future__ import annotations

from embedbk.testing.observer import Observer
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["Observer", "Violation", "World"]
