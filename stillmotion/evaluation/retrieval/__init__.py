"""Nearest-neighbor retrieval: Recall@k and mAP."""
