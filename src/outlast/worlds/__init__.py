"""The worlds: one instance each, pure, without a batch axis."""
