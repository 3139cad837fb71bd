"""The picture of a thread: its steps and runs, what they cost, and when; as values that JSON knows, and as one page.

`picture` reads a store and tells everything that is drawn, a `Drawing` does so again and again, `Details` what is
looked at closer, `overview` all threads of a store. `timeline.js` draws them, in a notebook
(`notebook/timeline.py`) and in the file that `page` gives.
"""

from __future__ import annotations

from resumable_nb.timeline.details import Details
from resumable_nb.timeline.overview import overview
from resumable_nb.timeline.page import page
from resumable_nb.timeline.picture import Drawing, picture

__all__ = ["Details", "Drawing", "overview", "page", "picture"]
