"""`study spectrum`: the theorems of image-to-video transfer on known covariances."""
