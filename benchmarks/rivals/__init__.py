"""The same task with mixupmp and with the libraries one would otherwise take: `python -m benchmarks.rivals`."""
