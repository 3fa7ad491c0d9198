"""Observations and actions of the environments that every image has, as the address of their uniform policy.

A unit test holds this table against the environments themselves.
"""

from collections.abc import Mapping

SPACES: Mapping[str, str] = {
    "Acrobot-v1": "uniform://discrete/3?observations=6",
    "Blackjack-v1": "uniform://discrete/2?observations=45",
    "CartPole-v1": "uniform://discrete/2?observations=4",
    "CliffWalking-v1": "uniform://discrete/4?observations=48",
    "CliffWalkingSlippery-v1": "uniform://discrete/4?observations=48",
    "FrozenLake-v1": "uniform://discrete/4?observations=16",
    "FrozenLake8x8-v1": "uniform://discrete/4?observations=64",
    "MountainCar-v0": "uniform://discrete/3?observations=2",
    "MountainCarContinuous-v0": "uniform://continuous/-1..1?observations=2",
    "Pendulum-v1": "uniform://continuous/-2..2?observations=3",
    "Taxi-v4": "uniform://discrete/6?observations=500",
}
