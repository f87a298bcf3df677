"""The live tests share one private desktop."""

from __future__ import annotations

from desk import desk, screen

__all__ = ["desk", "screen"]
