"""The built-in suites of gates: they ask a candidate what it must get right, and count what it gets wrong.

`python -m learnloop_gates run` plays one suite and writes its report; `python -m learnloop_gates deliver` hands the
report in. Both read the environment that the operator gives the containers of a suite's Job.
"""
