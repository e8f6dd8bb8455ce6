"""Commands about what runs wait for."""
