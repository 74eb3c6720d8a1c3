"""Training that outlasts the machine: pursuit-evasion self-play and a survival town."""

__version__ = "0.1.0"
