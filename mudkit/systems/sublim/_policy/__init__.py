"""Policies: rules and actions, functions, and what both read and write.

Limits stand where they are enforced: the text in ``text``, rules and actions in ``policy``, variables in
``state``, books in ``actions`` and ``execution``, the message in ``verdict``, run time in ``function``.
Exceeding one stops the policy for this message; other subscribers are not affected.
"""
