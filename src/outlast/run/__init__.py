"""The run layer: it compiles, dispatches, saves, logs and stops. It observes and never decides."""
