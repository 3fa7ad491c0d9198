"""The servers that run the models: vLLM, llama.cpp's and any that speaks as OpenAI does."""
