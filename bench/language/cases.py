"""What is measured, and the bars: gain of held-out success, and processor seconds of learning.

Learning rates were picked with one seed of their own (7); none of the measured ones is among them.
"""

from bench.language.tiny_runs import Case

BARS = {"rloo": (0.25, 40.0), "grpo": (0.25, 40.0), "ppo-lm": (0.25, 40.0), "dpo": (0.10, 30.0)}
"""By algorithm: least gain in sampled success, and most processor seconds."""
PAIRS = {"pairs": "episodes", "rollouts": 1024, "group_size": 4, "batch_pairs": 16}

CASES = {
    "rloo-lora": Case("rloo", "lora", 14, {"learning_rate": 3e-3}),
    "rloo-full": Case("rloo", "full", 14, {"learning_rate": 7e-4}),
    "grpo-lora": Case("grpo", "lora", 14, {"learning_rate": 2e-3}),
    "grpo-full": Case("grpo", "full", 14, {"learning_rate": 5e-4}),
    "ppo-lora": Case("ppo-lm", "lora", 14, {"learning_rate": 1e-3}),
    "ppo-full": Case("ppo-lm", "full", 14, {"learning_rate": 3e-4}),
    "dpo-lora": Case("dpo", "lora", 26, {**PAIRS, "learning_rate": 7e-4}),
}
