"""``drop_ratio``: punctuations for a share of rows that may come too late (ADC)."""
