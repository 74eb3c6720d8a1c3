"""Safety: barriers, the exact QP behind every filter, and what is built on them."""
