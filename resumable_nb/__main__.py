"""`python -m resumable_nb` is the command `resumable-nb`."""

from __future__ import annotations

from resumable_nb.cli import main

if __name__ == "__main__":
    main()
