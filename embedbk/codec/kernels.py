"""The pure functions of the C module: checksums, frame scan, striping."""

from embedbk.codec.twins import crc32c, cut, scan

__all__ = ["crc32c", "cut", "scan"]
