"""Join kernels and reorder kernels: arrays in, arrays out, no engine imports."""
