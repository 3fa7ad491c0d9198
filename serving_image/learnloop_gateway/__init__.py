"""A gateway before language models: it speaks OpenAI's wire format, draws the arm of each session, records each turn
with the tokens that were drawn, and answers from a fallback where no arm does."""
