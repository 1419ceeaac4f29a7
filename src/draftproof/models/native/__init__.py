"""Passes on the CPU in compiled code: fast for a few rows, and with the same bits whatever a pass's shape."""
