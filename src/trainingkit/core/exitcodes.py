"""Exit codes of the command line, one place for all of them."""

DONE = 0
"""The work was finished."""
FAILED = 1
"""Training failed: a rank raised, was killed, or lost a peer."""
BAD_INPUT = 2
"""Nothing was started: a setting, a file or an argument cannot be used."""
PREEMPTED = 75
"""Stopped on request (SIGTERM, SIGUSR1, SIGINT, a file) after saving; `trainingkit resume` continues. EX_TEMPFAIL's."""
INTERRUPTED = 130
"""A second Ctrl-C: stopped at once, nothing saved."""
