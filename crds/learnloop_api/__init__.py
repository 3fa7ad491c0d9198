"""The contract that every part of learnloop shares: custom resources, wire formats and names. Nothing here does I/O."""
