"""Self-play: the league of past opponents, who trains when, curricula, and what keeps a pair in balance."""
