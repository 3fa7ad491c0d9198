"""Hyperparameter studies: Optuna's sampler and pruner over PostgreSQL, for the trials that the operator runs."""
