"""Turns: one run of an agent as a row, run by whoever claims it.

Everything that asks whether a turn is running, queued or over asks the
database. Rows do not leave this room: edges get the values of ``records``.
"""
