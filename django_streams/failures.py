"""What a reader is told about an exception that nobody meant to publish."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from . import conf
from .exceptions import PublicError

logger = logging.getLogger("django_streams")


def public_reason(error: BaseException, doing: str) -> str:
    """The text to store for *error*, which was raised while *doing*.

    What the producer said to the public (:class:`PublicError`) is passed on.
    Anything else is ``Internal error`` with a reference id that finds the
    traceback in the log, unless ``EXPOSE_ERRORS`` says otherwise.
    """
    if isinstance(error, PublicError):
        return str(error)
    reference = secrets.token_hex(4)
    logger.error(
        "%s failed (reference %s)",
        doing,
        reference,
        exc_info=(type(error), error, error.__traceback__),
    )
    if conf.get().expose_errors:
        return f"{type(error).__name__}: {error}"
    return f"Internal error (reference {reference})"


@contextmanager
def contained() -> Iterator[None]:
    """Make ``SystemExit`` of a user's code an error like any other.

    ``sys.exit()`` somewhere in a library would end the process, with all turns of
    others in it, and then the process that takes this turn over, and the next.
    """
    try:
        yield
    except SystemExit as error:
        raise RuntimeError(f"the code asked to exit with {error.code!r}") from error
