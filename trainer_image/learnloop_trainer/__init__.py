"""Trains, evaluates and exports policies: the ranks of a TrainingJob.

Run it with `python -m learnloop_trainer`; everything it needs arrives in environment variables (see `training_order`).
"""
