"""Cluster quality: silhouette scores and t-SNE plots of the best-retrieved classes."""
