"""One family of errors: everything the service raises on purpose."""

from __future__ import annotations


class KernelAgentError(Exception):
    """Our failure or the user's bad input. The message names the thing, the place and the remedy."""

    exit_code = 1


class UsageError(KernelAgentError):
    """The user's input cannot be used as it is; nothing was changed."""

    exit_code = 2


class NotFoundError(UsageError):
    """A name that is not there; the message suggests near ones."""


class StoreError(KernelAgentError):
    """The database cannot be opened, read or written."""
