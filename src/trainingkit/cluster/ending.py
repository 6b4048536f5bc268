"""How a worker process of our own ends: at once, when its work is done and what it wrote is flushed.

The interpreter's own ending stops threads wherever they are. One that is inside native code of a process group at that
moment takes the process with it ("terminate called without an active exception", SIGABRT), now and then, on a busy
host, after everything went well.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def run_and_exit(main: Callable[[], None]) -> NoReturn:
    """Run `main` and end this process: with 0, with `SystemExit`'s code, or with 1 after a traceback on stderr.

    Nothing that is registered for the interpreter's exit runs.
    """
    code = 1
    try:
        main()
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
        if isinstance(left.code, str):
            sys.stderr.write(f"{left.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # closed: nobody reads it
                stream.flush()
        os._exit(code)
