"""Threads that work side by side on simulations."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def workers(threads: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads. What ends it early drops the work that has not begun; Ctrl-C does not even wait for what
    has."""
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except BaseException as error:
        pool.shutdown(wait=not isinstance(error, KeyboardInterrupt), cancel_futures=True)
        raise
    pool.shutdown()
