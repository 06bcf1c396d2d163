"""How strategies are registered, found and given their options."""
