"""``quality_driven``: K from a model of the recall (QDDH)."""
