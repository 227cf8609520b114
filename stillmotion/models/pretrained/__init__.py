"""Pretrained models: transformers wrapper, original checkpoints, Hugging Face hub, weight loading."""
