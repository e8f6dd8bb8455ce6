"""Commands about waits."""
