"""Inter- and intra-video distances, cycle accuracy and effective rank of patch tokens."""
