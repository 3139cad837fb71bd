"""The research state: typed models, their stored images, and the live object of a session.

`State` and `ResearchState` are what people subclass. `Image` is the stored form of a state at one moment, folded from
the `changes` of journal rows. `Live` holds the object that a session's code sees, and finds out what changed in it.
"""

from __future__ import annotations

from resumable_nb.state.image import Image
from resumable_nb.state.live import Live
from resumable_nb.state.model import ResearchState, State

__all__ = ["Image", "Live", "ResearchState", "State"]
