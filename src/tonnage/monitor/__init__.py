"""An engine's own metrics -> what they say about now: pages, the window between two of them, verdicts."""
