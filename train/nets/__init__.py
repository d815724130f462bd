"""Networks that two or more methods use."""
