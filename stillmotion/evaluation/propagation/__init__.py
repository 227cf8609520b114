"""Label propagation from the first frame: DAVIS, VIP and JHMDB."""
