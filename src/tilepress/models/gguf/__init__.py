"""GGUF files of llama.cpp: checked, put together from their parts, and converted to folders of transformers."""
