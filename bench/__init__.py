"""Benchmarks: programs that each answer one question, with the reference measured in the same run."""
