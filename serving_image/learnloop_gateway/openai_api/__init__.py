"""OpenAI's wire format: what is asked, what is answered, and how a refusal looks."""
