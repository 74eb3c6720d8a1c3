"""What can go wrong with a run directory: every problem is one line for the user and exit code 3."""


class RunProblem(Exception):
    """The run directory does not allow what was asked."""

    exit_code = 3


class Damaged(RunProblem):
    """A file is not what was written."""


class Refused(RunProblem):
    """The files may be good, but going on with them here would be wrong."""


class NoCheckpoint(RunProblem):
    """There is nothing to resume from."""


class DiskFull(RunProblem):
    """The disk did not take a write; what was good before it is still there."""
