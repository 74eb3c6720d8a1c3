"""Stopping on request: the first signal asks the loop to save and stop, the second leaves at once.

A thread listens, because a handler in Python waits until compiled code returns, and that can take a minute.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERRUPTED = 130
STOPS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether somebody has asked the run to stop."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.is_set, self._tell = False, tell

    def listen(self, fd: int) -> None:
        """Note the first signal; a second one exits without saving, which loses nothing that was saved."""
        while number := os.read(fd, 1):
            if number[0] not in STOPS:
                continue
            if self.is_set:
                os._exit(INTERRUPTED)
            self.is_set = True
            self._tell("stopping: the iteration is finished and saved first; a second signal leaves at once")


@contextmanager
def stop_on_signals(tell: Callable[[str], None] = lambda line: None) -> Iterator[StopRequest]:
    """Turn SIGINT and SIGTERM into a stop request."""
    request = StopRequest(tell)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    listener = threading.Thread(target=request.listen, args=(heard,), daemon=True)
    listener.start()
    woken = signal.set_wakeup_fd(told)
    before = {number: signal.signal(number, lambda *_: None) for number in STOPS}
    try:
        yield request
    finally:
        for number, action in before.items():
            signal.signal(number, action)
        signal.set_wakeup_fd(woken)
        os.close(told)
        listener.join()
        os.close(heard)
