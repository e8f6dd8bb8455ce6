"""`redis:` keeps runs in Redis or Valkey, artifacts too. What must happen together is one script."""
