"""The learners: pure functions over a named state."""
