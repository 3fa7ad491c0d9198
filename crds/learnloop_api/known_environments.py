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
    "Cooperative-v1": "uniform://discrete/5?observations=19",  # each of 3 agents
    "CooperativeContinuous-v1": "uniform://continuous/-1..1*3?observations=19",  # each of 3 agents
    "CooperativeHybrid-v1": "uniform://hybrid/2/-1..1*3?observations=19",  # each of 3 agents
    "Courier-v1": "uniform://hybrid/3/-1..1?observations=9",
    "DeepSea-v1": "uniform://discrete/2?observations=196",
    "Exploration-v1": "uniform://discrete/4?observations=83",
    "FrozenLake-v1": "uniform://discrete/4?observations=16",
    "FrozenLake8x8-v1": "uniform://discrete/4?observations=64",
    "KeyDoor-v1": "uniform://discrete/4?observations=21",
    "Manipulation-v1": "uniform://continuous/-1..1*7?observations=20",
    "MountainCar-v0": "uniform://discrete/3?observations=2",
    "MountainCarContinuous-v0": "uniform://continuous/-1..1?observations=2",
    "Navigation-v1": "uniform://continuous/-1..1*2?observations=23",
    "Pendulum-v1": "uniform://continuous/-2..2?observations=3",
    "PointGoals-v1": "uniform://continuous/-1..1*2?observations=2",
    "Relay-v1": "uniform://continuous/-1..1?observations=5",  # each of 2 agents
    "RelayHybrid-v1": "uniform://hybrid/3/-1..1?observations=8",  # each of 2 agents
    "ResourceAllocation-v1": "uniform://continuous/-1..1*12?observations=15",
    "SupplyChain-v1": "uniform://continuous/-1..1*5?observations=22",
    "Taxi-v4": "uniform://discrete/6?observations=500",
    "Trading-v1": "uniform://continuous/-1..1*3?observations=50",
    "TwoStep-v1": "uniform://discrete/2?observations=5",  # each of 2 agents
}
