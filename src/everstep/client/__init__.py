"""The faces users see: `AsyncHost`, `Host`, and what they return."""
