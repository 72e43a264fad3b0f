"""``nestmap bench search``: searches replayed on recorded spaces, ours beside other tuners'."""
