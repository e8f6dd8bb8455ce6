"""Other ways to write a flow."""
