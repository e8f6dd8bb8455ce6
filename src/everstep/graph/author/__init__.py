"""What users write flows with: nodes, gates, waits, subflows, and the Flow that holds them."""
