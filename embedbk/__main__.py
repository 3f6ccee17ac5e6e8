"""`python -m embedbk COMMAND ...`."""

from __future__ import annotations

import sys

from embedbk.cli import main

if __name__ == "__main__":
    sys.exit(main())
