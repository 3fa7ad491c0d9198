"""A tiny language model without weights, and servers of it that speak as vLLM, llama.cpp and OpenAI do."""
