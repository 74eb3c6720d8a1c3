"""Stopping on request: the first signal asks the loop to save and stop, the second leaves at once."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130


class StopRequest:
    """Whether somebody has asked the run to stop."""

    def __init__(self) -> None:
        self.is_set = False

    def receive(self, number: int, frame: object) -> None:
        """Note a signal; a second one exits without saving, which loses nothing that was saved."""
        if self.is_set:
            os._exit(INTERRUPTED)
        self.is_set = True


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a stop request."""
    request = StopRequest()
    before = {number: signal.signal(number, request.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, action in before.items():
            signal.signal(number, action)
