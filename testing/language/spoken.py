"""A language model as a LearningAgent and a TrainingJob name it, with something in every field."""

from typing import Any

DIGEST = "cd" * 32
SPOKEN: dict[str, Any] = {
    "base": {"uri": "pvc://models/tiny", "sha256": DIGEST},
    "templateSha256": "ef" * 32,
    "tools": [{"name": "lookup", "description": "The value of a key.", "parameters": {"type": "object"}}],
    "sampling": {"temperature": 0.8, "topP": 1.0, "topK": 0, "maxTokens": 48},
    "contextLength": 256,
}
