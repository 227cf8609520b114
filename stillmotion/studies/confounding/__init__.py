"""`study confounding`: the confounded-factor study of BOD-VCL, Section 5.5."""
