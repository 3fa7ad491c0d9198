"""Between messages and token ids: the chat template, the tokeniser and the model's tool calls."""
