"""The contract every part of learnloop shares: custom resources, wire formats and names.

Nothing here does I/O. The operator, the trainer, the policy server, the data plane and the SDK
import this package and never one another.
"""
